"""Progress bars of uploads and downloads, on the error output of a terminal and nowhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Moved = Callable[[int, int], None]
"""Is told bytes moved, and bytes in all."""


@contextmanager
def progress_bar(what: str) -> Iterator[Moved | None]:
    """Draw a bar while something moves; None where nobody looks."""
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
        task = bars.add_task(Text(plain(what)).plain.replace("[", r"\["), total=None)
        yield lambda moved, in_all: bars.update(task, completed=moved, total=in_all or None)
