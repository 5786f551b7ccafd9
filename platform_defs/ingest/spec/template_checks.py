"""Compiles every template and JSONPath of a spec once, so that none fails when a request is rendered."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from platform_defs.expressions.checks import compile_check
from platform_defs.expressions.errors import CompileError
from platform_defs.expressions.fields import Field, compile_headers, compile_query
from platform_defs.expressions.instants import compile_instants
from platform_defs.expressions.json_bodies import compile_json
from platform_defs.expressions.json_paths import compile_path
from platform_defs.expressions.standard_functions import STANDARD_FUNCTIONS
from platform_defs.expressions.syntax import Reference
from platform_defs.expressions.templates import unknown_references
from platform_defs.expressions.url_paths import compile_url_path
from platform_defs.ingest.codes import Location
from platform_defs.ingest.spec.merging import Findings
from platform_defs.ingest.spec.model import CallSpec, RequestParam
from platform_defs.ingest.spec.parts import Draft
from platform_defs.store.tables import registry as tables

# what the executor offers to templates; `params` are the trigger's own
SEARCH_NAMES = (
    *(f"window.{name}" for name in ("from", "to", "until")),
    *(f"page.{name}" for name in ("number", "page", "offset", "size", "token")),
    *(f"sort.{name}" for name in ("by", "direction")),
    *(f"idRange.{name}" for name in ("from", "to")),
    "params",
)
DETAIL_NAMES = ("ids", "idsText", "params")


def check_templates(draft: Draft, findings: Findings) -> None:
    spec = draft.spec
    allowed = frozenset(spec.expr.allowed_functions) or frozenset(STANDARD_FUNCTIONS)
    if unknown := sorted(allowed.difference(STANDARD_FUNCTIONS)):
        expected = f"expected functions among {', '.join(STANDARD_FUNCTIONS)}, got {', '.join(unknown)}"
        findings.add(tables.reg_prov_expr_capability, "allowed_functions_json", expected)
    if spec.search is not None:
        _CallCheck(spec.search, SEARCH_NAMES, allowed, findings).run()
    if spec.detail is not None:
        _CallCheck(spec.detail, DETAIL_NAMES, allowed, findings).run()
    pagination = {
        "next_token_path": spec.pagination.next_token_path,
        "next_url_path": spec.pagination.next_url_path,
        "has_more_path": spec.pagination.has_more_path,
        "total_path": spec.pagination.total_path,
    }
    for column, path in pagination.items():
        _check_path(findings, tables.reg_prov_pagination_cfg.name, column, path, None)
    owner = draft.detail if spec.two_phase and draft.detail is not None else draft.endpoint
    for output in spec.output_fields:
        name = owner["endpoint_name"]
        _check_path(findings, tables.reg_prov_endpoint_def.name, "output_fields_json", output.path, name)


class _CallCheck:
    """The checks of one endpoint's templates and paths."""

    def __init__(self, call: CallSpec, names: Iterable[str], allowed: frozenset[str], findings: Findings) -> None:
        self._call, self._allowed, self._findings = call, allowed, findings
        self._names = tuple(names)

    def run(self) -> None:
        http, endpoint = self._call.http, tables.reg_prov_endpoint_def.name
        self._check(endpoint, "path_template", lambda: compile_url_path(http.path_template))
        if http.body_template is not None:
            self._check(endpoint, "default_body_payload", lambda: compile_json(http.body_template))
        for column, fields, compiler in (
            ("default_headers_json", http.headers_template, compile_headers),
            ("default_query_json", http.query_template, compile_query),
        ):
            self._check_map(column, fields, compiler)
        for param in self._call.params:
            self._check_param(param)
        response = self._call.response
        for column, path in (
            ("items_path", response.items_path),
            ("id_path", response.id_path),
            ("updated_at_path", response.updated_at_path),
            ("id_prefix_path", response.id_prefix_path),
            *(("error_paths_json", path) for path in response.error_paths),
            *(("required_paths_json", path) for path in response.required_paths),
        ):
            _check_path(self._findings, endpoint, column, path, self._call.endpoint_name)
        try:
            compile_instants(response.updated_at_formats or ("AUTO",), response.timezone)
        except CompileError as error:
            self._findings.add(endpoint, "updated_at_formats_json", str(error), self._call.endpoint_name)

    def _check_map(self, column: str, fields: Mapping[str, str], compiler: Callable[..., Any]) -> None:
        for name, template in fields.items():
            self._check(tables.reg_prov_http_cfg.name, column, partial(compiler, {name: template}))

    def _check_param(self, param: RequestParam) -> None:
        table = tables.reg_prov_api_param_map.name
        if param.expr is None and param.default is None:
            if param.required:
                expected = f"{param.name}: expected an expression or a default, because it is required"
                self._findings.add(table, "expr_template", expected, self._call.endpoint_name, param.std_key)
            return
        compiler = compile_headers if param.location is Location.HEADER else compile_query
        self._check(table, "value_pattern", lambda: compile_check(pattern=param.pattern), param.std_key)
        template = param.expr if param.expr is not None else str(param.default)
        self._check(
            table,
            "expr_template",
            lambda: compiler([Field(name=param.name, template=template, default=param.default)]),
            param.std_key,
        )

    def _check(self, table: str, column: str, compile_it: Callable[[], Any], key: str | None = None) -> None:
        try:
            compiled = compile_it()
        except CompileError as error:
            self._findings.add(table, column, str(error), self._call.endpoint_name, key)
            return
        functions: frozenset[str] = getattr(compiled, "functions", frozenset())
        references: frozenset[Reference] = getattr(compiled, "references", frozenset())
        if forbidden := sorted(functions - self._allowed):
            expected = f"expected only functions that reg_prov_expr_capability allows, got {', '.join(forbidden)}"
            self._findings.add(table, column, expected, self._call.endpoint_name, key)
        if unknown := unknown_references(references, self._names):
            expected = f"expected names among {', '.join(self._names)}, got {', '.join(unknown)}"
            self._findings.add(table, column, expected, self._call.endpoint_name, key)


def _check_path(findings: Findings, table: str, column: str, path: str | None, endpoint: str | None) -> None:
    if path is None:
        return
    try:
        compile_path(path)
    except CompileError as error:
        findings.add(table, column, str(error), endpoint)
