"""The source of both forms: `python -m sdk.generate` writes the sync one from it."""
