"""Certificate authorities are read once per process, and not for each client or file."""

from __future__ import annotations

import ast
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

import quartermaster
from quartermaster import AsyncClient, Client
from quartermaster._authorities import trusted_authorities
from sdk.tests.scripted_service import ScriptedService

PACKAGE = Path(quartermaster.__file__).parent
CONNECTING = {"AsyncClient", "Client", "get", "stream"}


def test_many_clients_read_the_authorities_once(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts: list[ssl.SSLContext] = []
    create = ssl.create_default_context

    def counted(*arguments: object, **named: object) -> ssl.SSLContext:
        contexts.append(create(*arguments, **named))  # type: ignore[arg-type]
        return contexts[-1]

    trusted_authorities.cache_clear()
    monkeypatch.setattr(ssl, "create_default_context", counted)
    with Client(**service.secret), Client(**service.secret):
        AsyncClient(**service.secret)
    assert len(contexts) == 1
    assert contexts[0].verify_mode == ssl.CERT_REQUIRED
    assert contexts[0].check_hostname


def connections(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="httpx"), attr=name)) if name in CONNECTING:
                yield node


def test_nothing_connects_by_authorities_of_its_own() -> None:
    calls = [
        (path.name, ast.unparse(call), [keyword.arg for keyword in call.keywords])
        for path in PACKAGE.rglob("*.py")
        for call in connections(ast.parse(path.read_text()))
    ]
    assert calls
    assert [call for name, call, keywords in calls if "verify" not in keywords] == []
