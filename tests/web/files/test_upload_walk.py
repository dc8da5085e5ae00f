"""The README describes an upload through its files: each file that it names is executed, and they are few."""

import re
import sys
from pathlib import Path
from types import FrameType

import web
from tests.web.files.conftest import Cast

ROOT = Path(web.__file__).parents[1]
MAX_FILES = 8


def test_an_upload_passes_the_files_that_the_readme_names(cast: Cast) -> None:
    text = (ROOT / "README.md").read_text()
    walk = text[
        text.index("3. `web/files/writes.py`") : text.index("\n## ", text.index("3. `web/files/writes.py`"))
    ]
    named = list(dict.fromkeys(re.findall(r"`([\w./-]+\.py)`", walk)))
    assert len(named) <= MAX_FILES
    assert [name for name in named if name not in files_passed(cast)] == []


def files_passed(cast: Cast) -> set[str]:
    """Upload a file, and return the files with functions that were called."""
    passed = set()

    def notice(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            passed.add(frame.f_code.co_filename)

    sys.setprofile(notice)
    try:
        cast.agent.upload(b"content")
    finally:
        sys.setprofile(None)
    return {path.removeprefix(f"{ROOT}/") for path in passed}
