"""Rows, files and clocks for tests."""
