"""Settings: their types, how they are read from the environment, and the errors for invalid values."""
