"""The application, armed for the point that a file names at this moment; for `crashing_web_process.py`."""

import os
from pathlib import Path

os.environ["FAULTS"] = Path(os.environ["DYING_AT"]).read_text()

# Only now, as settings are read when it is imported.
from web.wsgi import application

__all__ = ["application"]
