"""Rows and leases of turns: the state that tasks and the execution of turns share."""
