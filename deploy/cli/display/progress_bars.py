"""Progress bars of uploads and downloads, drawn on the error output if it is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OnProgress = Callable[[int, int], None]
"""A function that receives the bytes transferred so far and the total bytes (0 if unknown)."""


@contextmanager
def progress_bar(label: str) -> Iterator[OnProgress | None]:
    """Draw a progress bar during the block, and yield its callback. Yield None if the error output is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.text import Text

    from deploy.cli.display.table_output import plain

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bars = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    with bars:
        # Escape the label: it is a file name that another user may have chosen, with markup or control characters.
        task = bars.add_task(Text(plain(label)).plain.replace("[", r"\["), total=None)
        yield lambda transferred, total: bars.update(task, completed=transferred, total=total or None)
