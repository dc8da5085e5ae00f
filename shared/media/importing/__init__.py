"""Imports of attachments: queue, lease, download, check, store, retry."""
