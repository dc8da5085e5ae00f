"""Run all steps with a client and print the results as JSON. Connections to other machines are refused.

`python -m tests.strict_clients.run with_langchain URL API_KEY MODEL DIALECT`, by the clients' own Python.
"""

import json
import sys
import traceback
from importlib import import_module
from typing import Any

from tests.strict_clients.steps import STEPS, Client


def main(module: str, *given: str) -> None:
    """Run each step. The result of a step that failed is its traceback."""
    sys.addaudithook(stay_here)
    import_module(f"tests.strict_clients.{module}")
    [kind] = Client.__subclasses__()
    client = kind(*given)
    results: dict[str, object] = {}
    for name in STEPS:
        try:
            results[name] = getattr(client, name)()
        except Exception:  # noqa: BLE001 (the other steps are of interest too)
            results[name] = traceback.format_exc()
    print(json.dumps(results))


def stay_here(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse to connect to, or to look up, any other machine."""
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    else:
        return
    if host not in {"127.0.0.1", b"127.0.0.1"}:
        raise ConnectionRefusedError(f"no test asks {host!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
