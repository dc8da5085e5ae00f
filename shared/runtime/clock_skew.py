"""The accepted difference between two hosts' clocks (deploy/README.md#clocks).

Deadlines use only the database's clock.
"""

CLOCKS_APART_SECONDS = 60
"""The largest difference between two hosts whose clocks each differ from the database's clock by at most 30 s."""
