"""Processes of the service and of the test run: how they start, are forked, die and are traced."""
