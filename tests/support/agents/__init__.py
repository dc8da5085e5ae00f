"""Agents and clients of agents for tests."""
