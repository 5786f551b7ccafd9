"""Precedence of the five levels, the origin of each value, and what an endpoint's operations compile to."""

from dataclasses import replace
from datetime import timedelta

import pytest

from platform_defs.ingest.codes import AuthType, Location, Operation
from platform_defs.ingest.errors import SpecError, UnknownEndpoint
from platform_defs.ingest.spec.compiler import compile_all, compile_spec
from platform_defs.ingest.spec.snapshot import mapping_hash, spec_as_json, spec_from_json
from platform_defs.store.tables import registry as tables
from tests.ingest.registry.making import GOOD, NOW, edited, rows_of

ENDPOINT_RETRY = "        output: {title: $.title}\n        retry: {max_retries: 7}\n"


def compiled(content: str = GOOD, operation: Operation = Operation.HARVEST, **overrides: object):  # type: ignore[no-untyped-def]
    return compile_spec(rows_of(content), "demo", "items", operation, overrides=overrides or None, now=NOW)


def with_levels(*parts: str) -> str:
    """The file with retries set at more and more particular levels."""
    content = GOOD
    if "endpoint" in parts:
        content = content.replace("        output: {title: $.title}\n", ENDPOINT_RETRY)
    if "operation of the source" in parts:
        content = content.replace(
            "    endpoints:\n", "    operations:\n      HARVEST:\n        retry: {max_retries: 5}\n    endpoints:\n"
        )
    if "operation of the endpoint" in parts:
        content = content.replace(
            ENDPOINT_RETRY,
            ENDPOINT_RETRY + "        operations:\n          HARVEST:\n            retry: {max_retries: 9}\n",
        )
    return content


def test_a_narrower_row_overrides_a_broader_one_and_is_named_as_the_origin() -> None:
    source = GOOD.replace("retry: {max_retries: 3, ", "retry: {")
    found = compiled(source)
    assert (found.spec.retry.max_attempts, found.origins["retry.max_attempts"]) == (5, "platform default")
    found = compiled()
    assert (found.spec.retry.max_attempts, found.origins["retry.max_attempts"]) == (4, "reg_prov_retry_cfg demo ALL #1")
    found = compiled(with_levels("operation of the source"))
    assert found.spec.retry.max_attempts == 6
    assert found.origins["retry.max_attempts"].startswith("reg_prov_retry_cfg demo HARVEST")
    found = compiled(with_levels("operation of the source", "endpoint"))
    assert found.spec.retry.max_attempts == 8, "an endpoint's row is stronger than its source's"
    assert found.spec.retry.retry_statuses == (500, 503), "what the endpoint's row leaves open is the source's"
    assert found.origins["retry.retry_statuses"].startswith("reg_prov_retry_cfg demo ALL")
    found = compiled(with_levels("operation of the source", "endpoint", "operation of the endpoint"))
    assert found.spec.retry.max_attempts == 10
    assert found.origins["retry.max_attempts"].startswith("reg_prov_retry_cfg demo.items HARVEST")
    found = compiled(with_levels("endpoint", "operation of the endpoint"), Operation.BACKFILL)
    assert found.spec.retry.max_attempts == 8, "the row of another operation does not count"
    found = compiled(with_levels("endpoint"), **{"retry.max_attempts": 2})
    assert (found.spec.retry.max_attempts, found.origins["retry.max_attempts"]) == (2, "trigger")


def test_the_source_gives_the_address_unless_its_http_row_does() -> None:
    found = compiled()
    assert found.origins["search.http.base_url"] == "reg_provenance demo ALL #1"
    found = compiled(GOOD.replace("    http:\n", "    http:\n      base_url: https://other.test\n"))
    assert found.spec.search is not None
    assert found.spec.search.http.base_url == "https://other.test"
    assert found.origins["search.http.base_url"].startswith("reg_prov_http_cfg demo")


def test_headers_and_queries_of_all_levels_are_sent_together() -> None:
    content = GOOD.replace("        items: $.items\n", "        query: {format: json}\n        items: $.items\n", 1)
    content = content.replace(
        "        output:", "        http: {headers: {X-Own: a}, query: {v: '1'}}\n        output:"
    )
    found = compiled(content)
    assert found.spec.search is not None
    assert found.spec.search.http.headers_template == {"Accept": "application/json", "X-Own": "a"}
    assert found.spec.search.http.query_template == {"format": "json", "v": "1"}
    assert found.origins["search.http.headers_template.Accept"].startswith("reg_prov_http_cfg demo ALL")
    assert found.origins["search.http.headers_template.X-Own"].startswith("reg_prov_http_cfg demo.items ALL")


def test_a_row_that_does_not_mention_a_flag_leaves_the_broader_one() -> None:
    content = GOOD.replace("    http:\n", "    http:\n      redirects: true\n      tls_verify: false\n")
    content = content.replace(
        "        output:", "        http: {headers: {X-Own: a}, tls_verify: true}\n        output:"
    )
    found = compiled(content)
    assert found.spec.search is not None
    assert (found.spec.search.http.redirects, found.spec.search.http.tls_verify) == (True, True)


def test_a_trigger_may_set_only_what_is_its_own() -> None:
    with pytest.raises(SpecError) as refused:
        compiled(**{"http.base_url": "https://evil.test", "pagination.page_size": "many", "window.size": 1})
    told = str(refused.value)
    assert "trigger.http.base_url: expected one of pagination.page_size" in told
    assert "trigger.pagination.page_size: expected a whole number, got 'many'" in told
    assert "trigger.window.size: expected one of" in told
    with pytest.raises(SpecError, match="expected at most the source's 200, got 300"):
        compiled(**{"pagination.page_size": 300})
    found = compiled(**{"window.safety_lag": timedelta(hours=2), "rate.refill_per_s": 2})
    assert (found.spec.window.safety_lag, found.spec.rate.refill_per_s) == (timedelta(hours=2), 2.0)


def test_each_active_endpoint_has_its_operations_and_a_broken_source_stops_no_other() -> None:
    rows = rows_of(GOOD + GOOD.removeprefix("sources:\n").replace("code: demo", "code: broken"))
    rows = edited(rows, tables.reg_prov_pagination_cfg, {"page_size_value": 0}, provenance_code="broken")
    broken, good = compile_all(rows, NOW)
    assert (broken.provenance_code, good.provenance_code) == ("broken", "demo")
    assert set(good.specs) == set(Operation)
    assert not good.problems
    assert not broken.specs
    assert broken.problems[Operation.HARVEST] == ("reg_prov_pagination_cfg.page_size_value: expected 1 or more, got 0",)


def test_an_endpoint_that_cannot_be_asked_by_id_has_no_update() -> None:
    content = GOOD.replace("        linked_endpoint: item\n", "")
    (found,) = compile_all(rows_of(content), NOW)
    assert set(found.specs) == {Operation.HARVEST, Operation.BACKFILL}
    assert not found.problems
    with pytest.raises(SpecError, match="expected the endpoint by which records are asked for by id"):
        compiled(content, Operation.UPDATE)


def test_an_inactive_source_is_not_there() -> None:
    rows = rows_of(GOOD.replace("    name: A source\n", "    name: A source\n    active: false\n"))
    assert compile_all(rows, NOW) == []
    with pytest.raises(UnknownEndpoint, match="no active source has the code 'demo'"):
        compile_spec(rows, "demo", "items", Operation.HARVEST, now=NOW)
    with pytest.raises(UnknownEndpoint, match="source demo has no endpoint 'nothing'; it has item, items"):
        compile_spec(rows_of(), "demo", "nothing", Operation.HARVEST, now=NOW)


def test_a_harvested_record_and_an_updated_one_have_the_same_mapping() -> None:
    assert len({mapping_hash(compiled(operation=operation).spec) for operation in Operation}) == 1


def test_a_spec_survives_its_json() -> None:
    spec = compiled().spec
    assert spec_from_json(spec_as_json(spec)) == spec


def test_what_the_source_cannot_do_is_a_warning() -> None:
    assert compiled(GOOD.replace("auth_required", "")).warnings == (
        "credential key: its secret is not present here; asked without it, at the general rate",
    )
    content = GOOD.replace(
        "      total: $.total\n      has_more: $.more\n", "      sort_by: updated\n      sort_is_stable: true\n"
    )
    content = content.replace("supports_updated_since: true", "supports_updated_since: false")
    told = " ".join(compiled(content).warnings)
    assert "no total" in told
    assert "no hasMore" in told
    assert "no updatedSince" in told


def test_an_optional_credential_is_used_where_its_secret_is_present(monkeypatch: pytest.MonkeyPatch) -> None:
    content = GOOD.replace("rate: {per_second: 5,", "rate: {per_second: 5, per_second_with_credential: 10,")
    found = compiled(content).spec
    assert (found.auth.type, found.rate.refill_per_s, found.rate.per_credential) == (AuthType.NONE, 5.0, False)
    monkeypatch.setenv("DEMO_KEY", "secret")
    found = compiled(content).spec
    assert (found.auth.type, found.auth.credential_alias) == (AuthType.API_KEY, "key")
    assert (found.rate.refill_per_s, found.rate.per_credential) == (10.0, True)
    assert "secret" not in repr(found).replace("secret_ref", ""), "a spec holds no secret"


def test_a_required_credential_is_named_even_where_its_secret_is_absent() -> None:
    found = compiled(GOOD.replace("        path: /items\n", "        path: /items\n        auth_required: true\n"))
    assert (found.spec.auth.type, found.spec.auth.required) == (AuthType.API_KEY, True)
    assert found.warnings == ("credential key: its secret is not present here; the source must be asked with it",)


def test_the_narrowest_credential_is_used_then_the_one_with_the_smallest_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DEMO_KEY", "x")
    first = '      - {alias: first, type: BEARER, secret: "env:DEMO_KEY", priority: 1}\n    pagination:\n'
    content = GOOD.replace("    pagination:\n", first, 1)
    assert compiled(content).spec.auth.credential_alias == "first"
    own = '        credentials: [{alias: own, type: BEARER, secret: "env:DEMO_KEY"}]\n        output:'
    assert compiled(content.replace("        output:", own)).spec.auth.credential_alias == "own"


def test_parameters_go_where_the_source_wants_them() -> None:
    content = GOOD.replace("path: /item\n", 'path: "/item/${doc}"\n').replace(
        "batching: {ids_param: id}",
        "params:\n"
        '          - {key: doc, name: doc, location: PATH, expr: "${idsText}"}\n'
        '          - {key: trace, name: X-Trace, location: HEADER, default: "on"}',
    )
    spec = compiled(content, Operation.UPDATE).spec
    assert spec.detail is not None
    assert spec.detail.http.path_template == "/item/${idsText}"
    assert [(param.name, param.location) for param in spec.detail.params] == [("X-Trace", Location.HEADER)]
    content = GOOD.replace(
        "method: GET\n        path: /item\n", "method: POST\n        path: /item\n        body: {kind: full, n: 3}\n"
    )
    content = content.replace(
        "batching: {ids_param: id}", 'params: [{key: ids, name: ids, location: BODY, expr: "${ids}"}]'
    )
    spec = compiled(content, Operation.UPDATE).spec
    assert spec.detail is not None
    assert spec.detail.http.body_template == {"kind": "full", "n": 3, "ids": "${ids}"}


def test_a_render_rule_gives_the_expression_of_its_parameter() -> None:
    content = GOOD.replace("functions: [formatDateTime]", "functions: [formatDateTime, join]")
    content = content.replace(
        "        batching: {ids_param: id}\n",
        "        params: [{key: ids, name: filter}]\n"
        '        render: [{field: ids, op: IN, item_template: "doi:${item}", joiner: ","}]\n',
    )
    spec = compiled(content, Operation.UPDATE).spec
    assert spec.detail is not None
    assert [param.expr for param in spec.detail.params] == ["doi:${join(ids, ',doi:')}"]


def test_paths_of_the_field_dictionary_hold_where_the_endpoint_says_nothing() -> None:
    rows = rows_of(GOOD.replace("        items: $.items\n", ""))
    with pytest.raises(SpecError, match="items_path"):
        compile_spec(rows, "demo", "items", Operation.HARVEST, now=NOW)
    rows = replace(rows, field_paths={"items_path": "$.data"})
    found = compile_spec(rows, "demo", "items", Operation.HARVEST, now=NOW)
    assert found.spec.search is not None
    assert found.spec.search.response.items_path == "$.data"
    assert found.origins["search.response.items_path"] == "reg_expr_field_dict"


def test_parameters_of_a_source_are_those_of_its_searches() -> None:
    content = GOOD.replace("    endpoints:\n", "    params: [{key: lang, name: lang, default: en}]\n    endpoints:\n")
    spec = compiled(content, Operation.UPDATE).spec
    assert spec.search is not None
    assert spec.detail is not None
    assert "lang" in [param.name for param in spec.search.params]
    assert [param.name for param in spec.detail.params] == ["id"]
