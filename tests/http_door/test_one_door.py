"""No request leaves the platform by another door than `platform_defs.http_door`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import ROOT

TREES = ("assets", "sensors", "resources", "platform_defs")

# Names through which a request, or a connection that carries one, can be opened.
OPENERS = {
    "httpx.Client",
    "httpx.AsyncClient",
    "httpx.HTTPTransport",
    "httpx.AsyncHTTPTransport",
    *(f"httpx.{verb}" for verb in ("get", "post", "put", "patch", "delete", "head", "options", "request", "stream")),
    "httpcore",
    "requests",
    "urllib3",
    "aiohttp",
    "http.client",
    "urllib.request",
    "socket.create_connection",
    "openlineage.client",
    "dagster_graphql",
}

ALLOWED = {
    # the door itself: sockets below, connection pool above
    "platform_defs/http_door/network.py": {"httpcore"},
    "platform_defs/http_door/transport.py": {"httpcore"},
    # deliveries of webhooks have rows, retries and address checks of their own, and go to a team's own receiver
    "platform_defs/webhooks/connection.py": {"socket.create_connection"},
    # ask the platform's own processes whether they are up, and whose they are
    "platform_defs/supervisor/probes.py": {"urllib.request", "http.client"},
    "platform_defs/supervisor/owners.py": {"urllib.request"},
    # the demo is a user of the platform's own API and UI on loopback
    "platform_defs/demo/doors.py": {"httpx.Client", "httpx.post"},
}


def uses(source: str) -> Iterator[str]:
    """Every dotted name that a module imports or reaches through an import."""
    tree = ast.parse(source)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                known[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := dotted(node)):
            first, _, rest = name.partition(".")
            if first in known:
                yield f"{known[first]}.{rest}"


def dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return None


def openers(source: str) -> set[str]:
    return {opener for name in uses(source) for opener in OPENERS if name == opener or name.startswith(f"{opener}.")}


def found() -> dict[str, set[str]]:
    paths = [path for tree in TREES for path in Path(ROOT, tree).rglob("*.py")]
    assert len(paths) > 100
    return {str(path.relative_to(ROOT)): names for path in paths if (names := openers(path.read_text()))}


def test_requests_leave_by_the_door_alone() -> None:
    assert found() == ALLOWED


@pytest.mark.parametrize(
    ("source", "opener"),
    [
        ("import httpx\nhttpx.Client()", "httpx.Client"),
        ("import httpx as h\nh.get('x')", "httpx.get"),
        ("from httpx import AsyncClient as C", "httpx.AsyncClient"),
        ("import urllib.request\nurllib.request.urlopen('x')", "urllib.request"),
        ("from urllib import request", "urllib.request"),
        ("from urllib.request import urlopen", "urllib.request"),
        ("import requests", "requests"),
        ("def f():\n    import http.client as c\n    c.HTTPConnection('x')", "http.client"),
        ("from socket import create_connection", "socket.create_connection"),
    ],
)
def test_the_scan_sees_every_way_of_writing_it(source: str, opener: str) -> None:
    assert openers(source) == {opener}


def test_the_scan_leaves_harmless_names_alone() -> None:
    imports = "import httpx, socket\nfrom urllib.parse import urlsplit\n"
    assert openers(imports + "httpx.Request('GET', 'x'); httpx.URL('x'); socket.socketpair()") == set()
