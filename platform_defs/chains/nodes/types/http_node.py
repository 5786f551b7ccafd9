"""The node type `http`: sends one request through the door and the rate gate; a JSON answer is the artifact."""

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import httpx
from pydantic import Field
from sqlalchemy import Engine

from platform_defs.chains.nodes.cfg import NodeCfg
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.port import NodeContext, NodeFailed, NodeResult, NodeStopped
from platform_defs.chains.nodes.secrets import referenced_name
from platform_defs.http_door.door import Door
from platform_defs.http_door.errors import Cancelled, DoorError, InvalidRequest
from platform_defs.http_door.policy import LONGEST_TIMEOUT_S, LONGEST_TOTAL_S, Passage, Redirects, RetryPolicy, Timeouts
from platform_defs.http_door.redirects import url_without_query
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.policy import SLOWEST_RATE, RatePolicy
from platform_defs.rate_gate.table import open_gate_engine
from platform_defs.webhooks.addresses import check_url, permitted_addresses
from platform_defs.webhooks.errors import AddressRefused, UrlRefused

DEFAULT_RATE = 10.0
# of an answer that is an error, for the message
_SHOWN_CHARACTERS = 200
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?")
# headers of the connection and of the body's length belong to the door
_RESERVED = frozenset({"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"})

Scalar = str | int | float | bool


class HttpCfg(NodeCfg):
    """Sends one HTTP request. A status of 200 to 299 is success, and a JSON answer is the artifact.

    A text `env:NAME`, or `Bearer env:NAME`, in url, query, headers or body refers to a secret.
    """

    url_fields: ClassVar[frozenset[str]] = frozenset({"url"})

    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    url: str = Field(description="An http or https URL. Private addresses need PLATFORM_HTTP_ALLOW.")
    query: dict[str, Scalar | list[Scalar]] = Field({}, description="Added to the URL, percent-encoded.")
    headers: dict[str, Scalar] = Field({}, description="Headers of the request.")
    body: Any = Field(None, description="A text is sent as it is, anything else as JSON.")
    rate_key: str | None = Field(
        None, min_length=1, max_length=200, description="Requests with one key share a rate; default: the host."
    )
    rate_per_second: float = Field(
        DEFAULT_RATE, ge=SLOWEST_RATE, le=1000, description="Requests per second that all chains together may send."
    )
    follow_redirects: bool = Field(
        True, description="Whether a GET or HEAD follows up to 5 redirects; each address is checked like the first."
    )
    read_timeout_seconds: float = Field(
        LONGEST_TIMEOUT_S, gt=0, le=LONGEST_TIMEOUT_S, description="How long the server may send nothing."
    )


class HttpExecutor:
    name = "http"
    cfg_model = HttpCfg

    def __init__(self, environment: NodeEnvironment | None) -> None:
        self._environment = environment
        self._lock = threading.Lock()
        self._door: Door | None = None
        self._gate_engine: Engine | None = None

    def close(self) -> None:
        with self._lock:
            if self._door is not None:
                self._door.close()
            if self._gate_engine is not None:
                self._gate_engine.dispose()
            self._door = self._gate_engine = None

    def problems(self, cfg: HttpCfg) -> Iterator[str]:
        """What is refused before anything is sent. A name in the URL is checked when it is resolved."""
        if referenced_name(cfg.url) is None and (problem := self._url_problem(cfg.url)):
            yield f"cfg.url: {problem}"
        for name, value in cfg.headers.items():
            if not _HEADER_NAME.fullmatch(name) or name.lower() in _RESERVED:
                yield f"cfg.headers: expected the name of a header that a request may set, got {name!r}"
            elif not _HEADER_VALUE.fullmatch(_text(value)):
                yield f"cfg.headers.{name}: expected printable ASCII on one line without spaces at the ends"
            elif _text(value).startswith("file:"):
                yield f"cfg.headers.{name}: expected env:NAME, since secrets of chains are in the environment"
        if cfg.body is not None and cfg.method in ("GET", "HEAD"):
            yield f"cfg.body: a {cfg.method} request has no body"

    def execute(self, context: NodeContext, cfg: HttpCfg) -> NodeResult:
        request = self._request(context, cfg)
        cancel = threading.Event()
        passage = Passage(
            key=f"chain:{cfg.rate_key or request.url.host}",
            rate=RatePolicy(refill_per_s=cfg.rate_per_second, burst=max(1, int(cfg.rate_per_second))),
            # how often and after which pause a node is tried again is said by the node itself
            retry=RetryPolicy(max_attempts=1),
            timeouts=Timeouts(read_s=cfg.read_timeout_seconds, total_s=LONGEST_TOTAL_S),
            redirects=Redirects(limit=5, any_origin=True) if cfg.follow_redirects else None,
            task=context.run_id,
            deadline_s=context.timeout_s or LONGEST_TOTAL_S,
            cancel=cancel,
        )
        # the door's messages show the URL without its query, but a whole URL may be a secret
        shown = url_without_query(request.url)
        named = cfg.url if referenced_name(cfg.url) else shown
        context.log(f"{cfg.method} {named}")
        try:
            with context.stop.interrupting(cancel.set):
                exchange = self._opened_door().send(request, passage)
        except Cancelled:
            raise NodeStopped(context.stop.reason or "cancelled") from None
        except (AddressRefused, InvalidRequest) as error:
            raise NodeFailed(str(error).replace(shown, named), may_retry=False) from None
        except DoorError as error:
            answer = _shown_answer(getattr(error, "response", None))
            raise NodeFailed(f"{error}{answer}".replace(shown, named)) from None
        response = exchange.response
        context.log(f"status {response.status_code}, {len(response.content)} bytes")
        return NodeResult(artifact=_parsed(response))

    def _request(self, context: NodeContext, cfg: HttpCfg) -> httpx.Request:
        """The request with its secrets; raises NodeFailed before anything is sent."""
        url = context.reveal(cfg.url)
        if problem := self._url_problem(url):
            raise NodeFailed(f"cfg.url: {problem}", may_retry=False)
        query: list[tuple[str, str]] = []
        for name, value in cfg.query.items():
            query += [(name, context.reveal(_text(one))) for one in (value if isinstance(value, list) else [value])]
        headers = {name: _header(context, name, _text(value)) for name, value in cfg.headers.items()}
        content: bytes | None = None
        if cfg.body is not None:
            kind, content = _encoded(_revealed(context, cfg.body))
            if not any(name.lower() == "content-type" for name in headers):
                headers["Content-Type"] = kind
        target = httpx.URL(url)
        target = target.copy_with(params=target.params.merge(_by_name(query))) if query else target
        return httpx.Request(cfg.method, target, headers=headers, content=content)

    def _url_problem(self, url: str) -> str | None:
        try:
            check_url(url, allow=self._environment.networks if self._environment else ())
        except UrlRefused as error:
            return str(error)
        return None

    def _opened_door(self) -> Door:
        environment = self._environment
        if environment is None:
            raise NodeFailed("this process knows no way to send requests", may_retry=False)
        with self._lock:
            if self._door is None:
                self._gate_engine = open_gate_engine(environment.engine.url)
                self._door = Door(RateGate(self._gate_engine), resolver=self._resolve)
            return self._door

    def _resolve(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host that may be connected to: also of a redirect's host, and of addresses in a URL."""
        assert self._environment is not None
        found = self._environment.resolver(host, port)
        permitted = permitted_addresses(
            host, port, allow=self._environment.networks, resolver=lambda name, number: found
        )
        return [str(address) for address in permitted]


def _header(context: NodeContext, name: str, value: str) -> str:
    revealed = context.reveal(value)
    if not _HEADER_VALUE.fullmatch(revealed):
        raise NodeFailed(f"cfg.headers.{name}: expected a secret of printable ASCII on one line", may_retry=False)
    return revealed


def _by_name(query: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    merged: dict[str, list[str]] = {}
    for name, value in query:
        merged.setdefault(name, []).append(value)
    return merged


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _revealed(context: NodeContext, value: Any) -> Any:
    match value:
        case str():
            return context.reveal(value)
        case Mapping():
            return {key: _revealed(context, member) for key, member in value.items()}
        case list():
            return [_revealed(context, element) for element in value]
    return value


def _encoded(body: Any) -> tuple[str, bytes]:
    if isinstance(body, str):
        return "text/plain; charset=utf-8", body.encode()
    return "application/json", json.dumps(body, ensure_ascii=False, allow_nan=False).encode()


def _parsed(response: httpx.Response) -> Any:
    """The JSON of the answer; any other answer leaves no artifact."""
    try:
        return json.loads(response.content) if response.content else None
    except (ValueError, RecursionError):
        return None


def _shown_answer(response: httpx.Response | None) -> str:
    """The beginning of an answer that was an error, because its reason is there."""
    if response is None or not response.content:
        return ""
    text = " ".join(response.text.split())
    return f": {text[:_SHOWN_CHARACTERS]}{'…' if len(text) > _SHOWN_CHARACTERS else ''}"
