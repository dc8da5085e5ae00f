"""Uploads whose content comes in several requests, and goes on after a cut (docs/specification/files.md#resumable)."""
