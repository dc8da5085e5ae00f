"""Noisy-neighbor trials: a hostile tenant or anonymous client with ten times as many connections as a pool has slots.

Each trial also measures an honest tenant (the victim) beside the crowd.
"""
