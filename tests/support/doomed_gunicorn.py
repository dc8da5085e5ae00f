"""Gunicorn, in a process that has imported the application before it forks; for `doomed.py`."""

import runpy

import web.app  # noqa: F401 (for those that are forked)

if __name__ == "__main__":
    runpy.run_module("gunicorn", run_name="__main__", alter_sys=True)
