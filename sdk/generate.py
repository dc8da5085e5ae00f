"""Generate the package `_sync` of the SDK from `_async`. A test compares the committed files with the result."""

import sys
from pathlib import Path

import unasync

PACKAGE = Path(__file__).parent / "src" / "quartermaster"
SOURCE, GENERATED = PACKAGE / "_async", PACKAGE / "_sync"
NAMES = {
    "_async": "_sync",
    "async_auth_flow": "sync_auth_flow",
    "async_call": "call",
    "async_open_content": "open_content",
    "async_pieces": "pieces",
    "async_sleep": "sleep",
    "_async_part_of": "_part_of",
    "aclose": "close",
    "aiter_bytes": "iter_bytes",
    "aiter_raw": "iter_raw",
    "aread": "read",
    "ASYNC_PIECE_BYTES": "PIECE_BYTES",
    "AsyncBody": "Body",
    "AsyncCallerAuth": "CallerAuth",
    "AsyncClient": "Client",
    "AsyncDownloads": "Downloads",
    "AsyncExchangedTokens": "ExchangedTokens",
    "AsyncFiles": "Files",
    "AsyncFixedToken": "FixedToken",
    "AsyncLock": "Lock",
    "AsyncOpenAI": "OpenAI",
    "AsyncRaw": "Raw",
    "AsyncSender": "Sender",
    "AsyncSource": "Source",
    "AsyncTokens": "Tokens",
    "AsyncUploads": "Uploads",
    "AsyncUsage": "Usage",
}


def generate(target: Path) -> None:
    """Write the modules of the package `_sync` to a directory."""
    target.mkdir(parents=True, exist_ok=True)
    rule = unasync.Rule(fromdir=f"{SOURCE}/", todir=f"{target}/", additional_replacements=NAMES)
    unasync.unasync_files([str(path) for path in sorted(SOURCE.glob("*.py"))], [rule])


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else GENERATED)
