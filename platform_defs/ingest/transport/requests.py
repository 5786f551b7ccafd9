"""Renders requests of an endpoint: every value in its own place, none of which can change the request's structure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

from platform_defs.canonical import sha256_hex
from platform_defs.expressions.checks import compile_check
from platform_defs.expressions.context import Context
from platform_defs.expressions.errors import RenderError
from platform_defs.expressions.fields import CompiledFields, Field, compile_headers, compile_query, encode_pairs
from platform_defs.expressions.functions import FunctionRegistry
from platform_defs.expressions.json_bodies import JsonTemplate, compile_json
from platform_defs.expressions.standard_functions import STANDARD_FUNCTIONS
from platform_defs.expressions.templates import NullPolicy
from platform_defs.expressions.url_paths import UrlPathTemplate, compile_url_path
from platform_defs.ingest.codes import ErrorLevel, Location, Operation
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.execution.replay import BatchContext
from platform_defs.ingest.spec.model import CallSpec, RequestParam, Spec
from platform_defs.ingest.spec.snapshot import instant_text

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


@dataclass(frozen=True)
class CompiledCall:
    """The templates of one endpoint, compiled once for a snapshot; immutable and shared by all threads."""

    call: CallSpec
    base: httpx.URL
    path: UrlPathTemplate
    query: CompiledFields
    # used instead of `query` while a window is cut into ranges of ids
    query_with_id_range: CompiledFields | None
    headers: CompiledFields
    body: JsonTemplate | None

    @classmethod
    def of(cls, call: CallSpec, spec: Spec) -> "CompiledCall":
        functions = STANDARD_FUNCTIONS
        if spec.expr.allowed_functions:
            functions = STANDARD_FUNCTIONS.restricted_to(spec.expr.allowed_functions)
        policy = NullPolicy(spec.expr.null_policy)
        ranged = None
        if spec.id_range_param is not None and call is spec.search:
            others = tuple(param for param in call.params if param.name != spec.id_range_param.name)
            ranged = _query(call, (*others, spec.id_range_param), functions, policy)
        headers = {name: Field(name=name, template=value) for name, value in call.http.headers_template.items()}
        headers |= {param.name: _field(param) for param in call.params if param.location is Location.HEADER}
        body = call.http.body_template
        return cls(
            call,
            httpx.URL(call.http.base_url),
            compile_url_path(_joined_path(call), functions=functions),
            _query(call, call.params, functions, policy),
            ranged,
            compile_headers(headers.values(), functions=functions, null_policy=policy),
            None if body is None else compile_json(body, functions=functions, null_policy=policy),
        )

    def request(self, names: Mapping[str, Any], now: datetime) -> httpx.Request:
        """The request without its credential; a value that may not be sent raises before anything is."""
        context, http = Context(names, now), self.call.http
        try:
            fields = self.query_with_id_range if names.get("idRange") and self.query_with_id_range else self.query
            pairs, headers = fields.render(context), self._headers(context)
            path = self.path.render(context)
            content = None if self.body is None else self.body.encode(context)
        except RenderError as error:
            raise ResponseError(ErrorLevel.REQUEST, "CANNOT_RENDER", f"{self.call.endpoint_name}: {error}") from None
        if content is not None:
            headers.setdefault("Content-Type", http.content_type or JSON)
        query = encode_pairs(pairs)
        longest = http.post_above_url_length
        if content is None and longest is not None and len(str(self._url(path))) + len(query) > longest:
            headers |= {"Content-Type": FORM}
            return httpx.Request("POST", self._url(path), headers=headers, content=query.encode())
        return httpx.Request(http.method, self._url(path, query), headers=headers, content=content)

    def _url(self, path: str, query: str = "") -> httpx.URL:
        return self.base.copy_with(raw_path=f"{path}?{query}".encode() if query else path.encode())

    def next_page(self, url: str, names: Mapping[str, Any], now: datetime) -> httpx.Request:
        """The request of a page whose address the source gave: on the same origin, or refused before it is sent."""
        own, given = urlsplit(self.call.http.base_url), urlsplit(url)
        if (own.scheme, own.hostname, own.port) != (given.scheme, given.hostname, given.port):
            raise ResponseError(
                ErrorLevel.REQUEST,
                "FOREIGN_NEXT_URL",
                f"the source names a next page on {given.scheme}://{given.hostname}: expected one on {own.hostname}",
            )
        return httpx.Request(self.call.http.method, url, headers=self._headers(Context(names, now)))

    def _headers(self, context: Context) -> dict[str, str]:
        headers = dict(self.headers.render(context))
        if not self.call.http.compress:
            # without the header the door would ask for a compressed answer
            headers.setdefault("Accept-Encoding", "identity")
        return headers


def request_digest(request: httpx.Request, at: datetime) -> dict[str, Any]:
    """What a batch keeps of a request that was made `at` this time: without its credential, which is added later."""
    body = request.content
    return {
        "at": instant_text(at),
        "method": request.method,
        "url": _without_query(str(request.url)),
        "query": [[name, value[:500]] for name, value in request.url.params.multi_items()],
        "headers": sorted(name for name in request.headers if name != "host"),
        "bodyHash": f"sha256:{sha256_hex(body.decode('utf-8', 'replace'))}" if body else None,
    }


def _without_query(url: str) -> str:
    """As a text: httpx would check every character of the URL once more."""
    before, mark, fragment = url.partition("#")
    return before.partition("?")[0] + mark + fragment


def _joined_path(call: CallSpec) -> str:
    """The base URL's own path, such as a mirror's prefix, before the endpoint's."""
    prefix = urlsplit(call.http.base_url).path.rstrip("/")
    return f"{prefix}/{call.http.path_template.lstrip('/')}"


def _query(
    call: CallSpec, params: tuple[RequestParam, ...], functions: FunctionRegistry, policy: NullPolicy
) -> CompiledFields:
    fields = {name: Field(name=name, template=value) for name, value in call.http.query_template.items()}
    fields |= {param.name: _field(param) for param in params if param.location is Location.QUERY}
    return compile_query(fields.values(), functions=functions, null_policy=policy)


def _field(param: RequestParam) -> Field:
    check = None if param.pattern is None else compile_check(pattern=param.pattern)
    template = param.expr if param.expr is not None else (param.default or "")
    default = param.default if param.expr is not None else None
    return Field(name=param.name, template=template, required=param.required, default=default, check=check)


@dataclass(frozen=True)
class Replay:
    """A batch's request rendered anew, beside what the batch has kept of the original."""

    # None for a page that failed
    stored: Mapping[str, Any] | None
    rebuilt: Mapping[str, Any]
    context: BatchContext

    @property
    def is_same(self) -> bool | None:
        """None where there is nothing to compare with; batches from before the time was kept are compared without."""
        return None if self.stored is None else all(self.rebuilt[name] == kept for name, kept in self.stored.items())


def replay_request(context: BatchContext) -> Replay:
    """Renders the request of a batch from its snapshot; sends nothing."""
    spec = context.spec
    call = spec.detail if spec.operation is Operation.UPDATE else spec.search
    assert call is not None, "the plan was made for an endpoint that can be asked so"
    compiled, names = CompiledCall.of(call, spec), context.names
    url, asked_at = context.position.url, context.asked_at
    request = compiled.request(names, asked_at) if url is None else compiled.next_page(url, names, asked_at)
    stored = None if context.batch is None else context.batch.request_digest
    return Replay(stored, request_digest(request, asked_at), context)
