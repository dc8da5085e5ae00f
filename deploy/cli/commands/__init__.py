"""The administrative commands, one module for each area."""
