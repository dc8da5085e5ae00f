"""The settings of the service: how they are read from the environment, and the errors for wrong values."""
