"""Run the program of a GitHub deployment from a checkout."""
