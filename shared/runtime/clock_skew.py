"""By how much the clocks of hosts may differ (deploy/README.md#clocks); promises go by the database's alone."""

CLOCKS_APART_SECONDS = 60
"""Between two hosts that are each within 30 s of the database's."""
