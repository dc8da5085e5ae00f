"""The settings: their types, reading them from the environment, and the errors for invalid values."""
