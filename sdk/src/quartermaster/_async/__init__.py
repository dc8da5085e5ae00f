"""The source of both halves of the SDK: `python -m sdk.generate` generates the sync half from it."""
