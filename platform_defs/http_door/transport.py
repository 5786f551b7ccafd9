"""A transport of httpx over pooled connections, with a time limit per request and no setting of the environment."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

from platform_defs.http_door.network import Budget, BudgetedBackend, Resolver

# the budget of a request, among its extensions
BUDGET = "platform_budget"

_CONNECTIONS = 32
_IDLE_CONNECTIONS = 16
_IDLE_S = 15.0


class BoundedTransport(httpx.BaseTransport):
    """Thread-safe: several requests may be under way at once, each in its own thread."""

    def __init__(
        self, *, tls: ssl.SSLContext | None = None, proxy: str | None = None, resolver: Resolver | None = None
    ) -> None:
        """`resolver` says which addresses a host may be connected at; behind a proxy it sees the proxy alone."""
        self._backend = BudgetedBackend(resolver)
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls or httpx.create_ssl_context(trust_env=False),
            proxy=None if proxy is None else _proxy(proxy),
            max_connections=_CONNECTIONS,
            max_keepalive_connections=_IDLE_CONNECTIONS,
            keepalive_expiry=_IDLE_S,
            network_backend=self._backend,
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        budget: Budget = request.extensions[BUDGET]
        self._backend.begin(budget)
        with _as_httpx():
            response = self._pool.handle_request(
                httpcore.Request(
                    method=request.method,
                    url=httpcore.URL(
                        scheme=request.url.raw_scheme,
                        host=request.url.raw_host,
                        port=request.url.port,
                        target=request.url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.content,
                    extensions={"timeout": request.extensions.get("timeout", {})},
                )
            )
        stream = _Body(response, self._backend, budget)
        return httpx.Response(response.status, headers=response.headers, stream=stream, request=request)

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response, backend: BudgetedBackend, budget: Budget) -> None:
        self._response = response
        self._backend = backend
        self._budget = budget

    def __iter__(self) -> Iterator[bytes]:
        self._backend.begin(self._budget)
        with _as_httpx():
            yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


@contextmanager
def _as_httpx() -> Iterator[None]:
    """The errors of httpcore under the same names in httpx."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise _httpx_error(error) from error
    except (httpcore.UnsupportedProtocol, httpcore.ProxyError) as error:
        raise _httpx_error(error) from error


def _httpx_error(error: Exception) -> httpx.TransportError:
    kind: Any = getattr(httpx, type(error).__name__, httpx.TransportError)
    named: httpx.TransportError = kind(str(error))
    return named


def _proxy(url: str) -> httpcore.Proxy:
    parsed = httpx.URL(url)
    if parsed.scheme != "http" or not parsed.host:
        raise ValueError("proxy: expected a URL such as http://proxy:3128")
    auth = (parsed.username, parsed.password) if parsed.username else None
    return httpcore.Proxy(httpcore.URL(scheme="http", host=parsed.host, port=parsed.port or 80, target="/"), auth=auth)
