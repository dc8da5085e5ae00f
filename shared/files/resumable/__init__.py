"""Uploads of content in several requests, resumed after an interruption (docs/specification/files.md#resumable)."""
