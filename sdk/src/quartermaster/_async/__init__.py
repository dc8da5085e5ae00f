"""The asyncio code of the SDK. `python -m sdk.generate` generates the package `_sync` from this package."""
