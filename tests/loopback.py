"""HTTP to servers that a test has started on this machine."""

import ssl
from typing import Any

import httpx

from tests.waiting import PATIENCE_S

# Nobody speaks TLS here, and to load the certificates of all authorities costs each client a fortieth of a second.
NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
OPTIONS: dict[str, Any] = {"verify": NO_AUTHORITIES, "trust_env": False, "timeout": PATIENCE_S}


def client(**options: Any) -> httpx.Client:
    return httpx.Client(**(OPTIONS | options))


def get(url: str, **options: Any) -> httpx.Response:
    return httpx.get(url, **(OPTIONS | options))


def post(url: str, **options: Any) -> httpx.Response:
    return httpx.post(url, **(OPTIONS | options))
