"""Programs that generate documentation from the code."""
