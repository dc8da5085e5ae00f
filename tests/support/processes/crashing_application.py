"""The WSGI application, armed for the fault point named in a file; for `crashing_web_process.py`."""

import os
from pathlib import Path

os.environ["FAULTS"] = Path(os.environ["DYING_AT"]).read_text()

# Import after setting FAULTS: the module reads its settings at import.
from web.wsgi import application

__all__ = ["application"]
