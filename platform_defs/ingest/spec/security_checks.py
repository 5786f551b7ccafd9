"""Checks of credentials and addresses: no anonymous call where a credential is due, no secret in the Registry."""

import re
from urllib.parse import urlsplit

from platform_defs.ingest.codes import AuthType, Location
from platform_defs.ingest.registry.values import SECRET_REFERENCE
from platform_defs.ingest.spec.merging import Findings
from platform_defs.ingest.spec.model import CallSpec
from platform_defs.ingest.spec.parts import Draft, as_code
from platform_defs.store.tables import registry as tables

# names whose values are secrets wherever they occur
_SECRET_NAMES = re.compile(
    r"(proxy-)?authorization|cookie|x?-?api[-_]?key|apikey|access[-_]?token|token|secret|client[-_]?secret|password",
    re.IGNORECASE,
)


def check_auth(draft: Draft, findings: Findings) -> None:
    """The credential fits the endpoint, and everything that its type needs is there (checks 1 and 9)."""
    row, table = draft.credential, tables.reg_prov_credential
    kind = AuthType.NONE if row is None else as_code(AuthType, row["auth_type_code"], AuthType.NONE)
    if draft.spec.auth.required and kind is AuthType.NONE:
        expected = f"expected a credential: endpoint {draft.spec.endpoint_name} may not be asked anonymously"
        findings.add(table, "auth_type_code", expected)
    if row is None or findings.has(table, "auth_type_code"):
        return
    needed: dict[str, str] = {}
    match kind:
        case AuthType.API_KEY:
            needed = {"secret_ref": "a reference to the key", "location_code": "a place", "field_name": "a name"}
        case AuthType.BEARER:
            needed = {"secret_ref": "a reference to the token"}
        case AuthType.OAUTH2:
            needed = {
                "secret_ref": "a reference to the client's secret",
                "client_id_ref": "a reference to the client's id",
                "token_url": "the URL at which tokens are fetched and refreshed",
            }
        case AuthType.CUSTOM:
            needed = {"secret_ref": "a reference to the secret"}
            if not any(hook["signing_hook"] for hook in draft.scoped(tables.reg_prov_http_cfg)):
                expected = "expected the name of a hook, because the credential is of type CUSTOM"
                findings.add(tables.reg_prov_http_cfg, "signing_hook", expected)
        case AuthType.NONE:
            pass
    for column, what in needed.items():
        if row[column] is None:
            findings.add(table, column, f"expected {what} for a credential of type {kind}")
    for column in ("secret_ref", "client_id_ref"):
        if row[column] is not None and SECRET_REFERENCE.fullmatch(row[column]) is None:
            findings.add(table, column, "expected env:NAME or file:PATH, never the secret itself")
    if row["token_url"] is not None and urlsplit(row["token_url"]).scheme != "https":
        plain = draft.spec.search is not None and draft.spec.search.http.plain_http_allowed
        if not plain:
            findings.add(table, "token_url", "expected an address with https, because it is sent a secret")
    for call in (draft.spec.search, draft.spec.detail):
        if call is not None and row["location_code"] == Location.BODY and call.http.method == "GET":
            expected = f"expected QUERY or HEADER: endpoint {call.endpoint_name} is asked by GET, which has no body"
            findings.add(table, "location_code", expected)


def check_http(draft: Draft, findings: Findings) -> None:
    for call in (draft.spec.search, draft.spec.detail):
        if call is not None:
            _check_address(call, findings)
            _check_literal_secrets(call, findings)
            if call.http.method == "GET" and call.http.body_template is not None:
                expected = "expected none for GET, which has no body"
                findings.add(tables.reg_prov_endpoint_def, "default_body_payload", expected, call.endpoint_name)


def _check_address(call: CallSpec, findings: Findings) -> None:
    http, table = call.http, tables.reg_prov_http_cfg
    if http.base_url:
        for problem in address_problems(http.base_url, plain_http_allowed=http.plain_http_allowed):
            findings.add(table, "base_url_override", problem)
    if not http.path_template.startswith("/"):
        expected = f"expected a path that begins with /, got {http.path_template!r}"
        findings.add(tables.reg_prov_endpoint_def, "path_template", expected, call.endpoint_name)
    if http.proxy_url is not None and (
        urlsplit(http.proxy_url).scheme not in ("http", "https") or "@" in http.proxy_url
    ):
        findings.add(table, "proxy_url_value", "expected an http or https address without user and password")


def address_problems(base_url: str, *, plain_http_allowed: bool) -> list[str]:
    """What is wrong with a base URL; empty if nothing is."""
    try:
        parts = urlsplit(base_url)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        return [f"expected a URL, got {base_url!r} ({error})"]
    problems = []
    if parts.scheme not in ("http", "https") or not host:
        problems.append(f"expected an address such as https://api.example.org, got {base_url!r}")
    elif parts.scheme == "http" and not plain_http_allowed:
        problems.append(f"expected https, got {base_url}; plain_http_allowed permits http")
    if parts.username is not None or parts.password is not None:
        problems.append("expected no user and password in the address; a credential refers to a secret")
    if parts.query or parts.fragment:
        problems.append("expected an address without query and fragment")
    return problems


def _check_literal_secrets(call: CallSpec, findings: Findings) -> None:
    """A header or parameter whose name says that it is a secret comes from a credential and from nowhere else."""
    expected = "expected a credential for it: a secret does not stand in the Registry"
    for column, names in (
        ("default_headers_json", call.http.headers_template),
        ("default_query_json", call.http.query_template),
    ):
        for name in names:
            if _SECRET_NAMES.fullmatch(name):
                findings.add(tables.reg_prov_http_cfg, column, f"{name}: {expected}")
    for param in call.params:
        is_literal = param.expr is None or "${" not in param.expr
        if _SECRET_NAMES.fullmatch(param.name) and is_literal:
            findings.add(tables.reg_prov_api_param_map, "expr_template", f"{param.name}: {expected}")
