"""Audit, repair, scrubbing and migration of stored content."""
