"""Progress bars of uploads and downloads, drawn on the error output if it is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OnProgress = Callable[[int, int], None]
"""Called with the bytes transferred and the total bytes (0 if unknown)."""


@contextmanager
def progress_bar(label: str) -> Iterator[OnProgress | None]:
    """Draw a progress bar during the block, and yield its callback; None if the error output is no terminal."""
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
        # The label is the file's name, which another user may have chosen: show markup and controls as text.
        task = bars.add_task(Text(plain(label)).plain.replace("[", r"\["), total=None)
        yield lambda transferred, total: bars.update(task, completed=transferred, total=total or None)
