"""How far the clocks of two hosts may differ (deploy/README.md#clocks). Deadlines use the database's clock only."""

CLOCKS_APART_SECONDS = 60
"""For two hosts that are each within 30 s of the database."""
