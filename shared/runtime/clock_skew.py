"""The accepted difference between two hosts' clocks (deploy/README.md#clocks).

Deadlines use only the database's clock.
"""

CLOCKS_APART_SECONDS = 60
"""For two hosts that are each within 30 s of the database."""
