"""Real Postgres and real Valkey from Python wheels, for one machine without any server installed."""
