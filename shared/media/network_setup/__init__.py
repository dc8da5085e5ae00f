"""Administration of messaging networks: settings, accounts, app installations."""
