"""Loading a Registry file: all or nothing, a change as a new effective row, and nothing where nothing changed."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, func, select

from platform_defs.ingest.codes import Operation, PaginationType
from platform_defs.ingest.errors import IngestError, RegistryFileError, UnknownEndpoint
from platform_defs.ingest.registry.file import read_file
from platform_defs.ingest.registry.loading import ChangeKind, diff, load, set_base_url
from platform_defs.ingest.registry.presets import preset_names, read_preset
from platform_defs.ingest.spec.compiler import compile_all, compile_spec
from platform_defs.store.engine import read
from platform_defs.store.tables import registry as tables
from platform_defs.work.definition_versions import read_versions
from tests.ingest.registry.making import GOOD, NOW, load_text
from tests.needs import ROOT

LATER = NOW + timedelta(hours=1)


def all_rows(engine: Engine, table: Any) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(table).order_by(table.c.id)).mappings())


def version(engine: Engine) -> int:
    return read(engine, read_versions).get("ingest", 0)


def test_a_change_is_a_new_row_and_the_previous_one_ends_when_it_begins(engine: Engine) -> None:
    load_text(engine, GOOD)
    before = version(engine)
    (change,) = load_text(engine, GOOD.replace("per_second: 5,", "per_second: 7,"), now=LATER)
    assert (change.kind, dict(change.columns)) == (ChangeKind.CHANGED, {"refill_rate_per_sec": (5.0, 7.0)})
    old, new = all_rows(engine, tables.reg_prov_rate_limit_cfg)
    assert (old["refill_rate_per_sec"], old["effective_from"], old["effective_to"]) == (5.0, NOW, LATER)
    assert (new["refill_rate_per_sec"], new["effective_from"], new["effective_to"]) == (7.0, LATER, None)
    assert version(engine) == before + 1, "whoever builds definitions notices"
    at = {moment: compile_spec(engine, "demo", "items", Operation.HARVEST, now=moment) for moment in (NOW, LATER)}
    assert [compiled.spec.rate.refill_per_s for compiled in at.values()] == [5.0, 7.0]


def test_loading_the_same_file_again_changes_nothing(engine: Engine) -> None:
    load_text(engine, GOOD)
    before, rows = version(engine), {t.name: all_rows(engine, t) for t in (tables.reg_prov_window_offset_cfg,)}
    assert load_text(engine, GOOD, now=LATER) == []
    assert version(engine) == before, "definitions are not reloaded for nothing"
    assert {t: all_rows(engine, tables.reg_prov_window_offset_cfg) for t in rows} == rows


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_loaded_once(engine: Engine, name: str) -> None:
    assert load_text(engine, read_preset(name).decode()) != []
    assert load_text(engine, read_preset(name).decode(), now=LATER) == []


def test_a_load_by_a_clock_that_is_ahead_counts_at_once(engine: Engine) -> None:
    load_text(engine, GOOD, now=NOW + timedelta(seconds=20))
    assert [each.provenance_code for each in compile_all(engine, NOW)] == ["demo"]
    assert load_text(engine, GOOD) == []


def test_loads_at_once_store_each_row_once(engine: Engine) -> None:
    with ThreadPoolExecutor(4) as pool:
        changes = list(pool.map(lambda _: load_text(engine, GOOD), range(4)))
    assert sorted(map(bool, changes)) == [False, False, False, True]
    assert len(all_rows(engine, tables.reg_prov_rate_limit_cfg)) == 1
    assert version(engine) == 1


def test_what_a_file_no_longer_names_ends_and_other_sources_stay(engine: Engine) -> None:
    load_text(engine, GOOD)
    load_text(engine, GOOD.replace("code: demo", "code: other"))
    without_rate = GOOD.replace("    rate: {per_second: 5, provider_limit_per_second: 10}\n", "")
    (change,) = load_text(engine, without_rate, now=LATER)
    assert (change.kind, change.table.name) == (ChangeKind.REMOVED, "reg_prov_rate_limit_cfg")
    compiled = {each.provenance_code: each.specs[Operation.HARVEST].spec for each in compile_all(engine, LATER)}
    assert compiled["demo"].rate.refill_per_s == 1.0, "the platform's own default"
    assert compiled["other"].rate.refill_per_s == 5.0


def test_two_changes_at_one_moment_are_two_rows(engine: Engine) -> None:
    for rate in (5, 6, 7):
        load_text(engine, GOOD.replace("per_second: 5,", f"per_second: {rate},"))
    rows = all_rows(engine, tables.reg_prov_rate_limit_cfg)
    assert [row["refill_rate_per_sec"] for row in rows] == [5.0, 6.0, 7.0]
    assert [row["effective_to"] for row in rows] == [rows[1]["effective_from"], rows[2]["effective_from"], None]


def test_a_file_that_does_not_compile_stores_nothing_and_names_the_lines(engine: Engine) -> None:
    load_text(engine, GOOD)
    before = version(engine)
    broken = GOOD.replace("per_second: 5,", "per_second: 50,").replace("id: $.id\n", "id: '$.['\n", 1)
    with pytest.raises(RegistryFileError) as refused:
        load_text(engine, broken, now=LATER)
    lines = {problem.split(":")[1] for problem in refused.value.problems}
    assert {"7", "37"} <= lines, refused.value.problems
    assert "at most the source's 10 a second, got 50" in str(refused.value)
    assert version(engine) == before
    assert len(all_rows(engine, tables.reg_prov_rate_limit_cfg)) == 1


def test_all_problems_of_a_file_are_told_with_line_and_field(engine: Engine) -> None:
    broken = (
        GOOD.replace('secret: "env:DEMO_KEY"', "secret: s3cr3t-value")
        .replace("page_size: 100", "page_size: many")
        .replace("align: hour", "aligned: hour")
        .replace("start: 2026-01-01", "start: soon")
        .replace("role: SEARCH", "rule: SEARCH")
    )
    with pytest.raises(RegistryFileError) as refused:
        load_text(engine, broken)
    told = "\n".join(refused.value.problems)
    for expected in (
        "sources.yaml:9: credentials: secret: expected env:NAME or file:PATH",
        "sources.yaml:14: pagination: page_size: 'many': expected a whole number",
        "sources.yaml:22: window: unknown field aligned",
        "sources.yaml:19: window: start: expected a day or a time such as 2024-01-01, got 'soon'",
        "unknown field rule",
        "role is missing",
    ):
        assert expected in told, told
    assert "s3cr3t-value" not in told, "a secret is not repeated"
    assert all_rows(engine, tables.reg_provenance) == []


def test_a_difference_is_shown_and_not_stored(engine: Engine) -> None:
    load_text(engine, GOOD)
    changed = read_file(GOOD.replace("page_size: 100", "page_size: 150").encode(), "sources.yaml")
    (change,) = diff(engine, changed, now=LATER)
    assert str(change) == "changed reg_prov_pagination_cfg demo page_size_value: 100 -> 150"
    assert diff(engine, read_file(GOOD.encode(), "sources.yaml"), now=LATER) == []


def test_a_difference_is_written_for_people_times_as_in_files_and_of_lists_what_differs(engine: Engine) -> None:
    load_text(engine, GOOD.replace("output: {title: $.title}", "output: {title: $.title, kind: $.kind}"))
    changed = GOOD.replace("start: 2026-01-01", "start: 2026-02-01").replace("title: $.title", "title: $.name")
    told = sorted(str(change) for change in diff(engine, read_file(changed.encode(), "sources.yaml"), now=LATER))
    assert told == [
        "changed reg_prov_endpoint_def demo.items output_fields_json: without [{'name': 'title', 'path': '$.title'},"
        " {'name': 'kind', 'path': '$.kind'}] and with [{'name': 'title', 'path': '$.name'}]",
        "changed reg_prov_window_offset_cfg demo start_at: 2026-01-01T00:00:00Z -> 2026-02-01T00:00:00Z",
    ]


def test_a_base_url_is_a_new_row_that_permits_plain_http(engine: Engine) -> None:
    load_text(engine, GOOD)
    set_base_url(engine, "demo", "http://127.0.0.1:8080/mirror/", now=LATER)
    old, new = all_rows(engine, tables.reg_prov_http_cfg)
    assert (old["effective_to"], new["effective_from"]) == (LATER, LATER)
    for operation in Operation:
        spec = compile_spec(engine, "demo", "items", operation, now=LATER).spec
        assert spec.search is not None
        assert spec.detail is not None
        assert {spec.search.http.base_url, spec.detail.http.base_url} == {"http://127.0.0.1:8080/mirror"}
        assert spec.search.http.headers_template == {"Accept": "application/json"}, "the rest of the row stays"
    assert set_base_url(engine, "demo", "http://127.0.0.1:8080/mirror", now=LATER + timedelta(hours=1)) == []


@pytest.mark.parametrize("url", ["ftp://x", "demo.test", "https://user:pw@demo.test", "https://demo.test/?a=1"])
def test_a_base_url_that_is_no_address_is_refused(engine: Engine, url: str) -> None:
    load_text(engine, GOOD)
    with pytest.raises(IngestError, match="base URL: expected"):
        set_base_url(engine, "demo", url, now=LATER)
    with pytest.raises(UnknownEndpoint, match="no source has the code 'nobody'"):
        set_base_url(engine, "nobody", "https://demo.test", now=LATER)


def test_a_preset_is_loaded_under_another_code_and_address(engine: Engine) -> None:
    file = read_file(read_preset("pubmed"), "preset:pubmed")
    start = NOW - timedelta(days=30)
    other = file.with_changes(code="demo_pubmed", base_url="http://127.0.0.1:9/", start=start, safety_lag=timedelta(0))
    load(engine, other, now=NOW)
    assert load(engine, other, now=LATER) == []
    spec = compile_spec(engine, "demo_pubmed", "search", Operation.HARVEST, now=LATER).spec
    assert spec.search is not None
    assert (spec.search.http.base_url, spec.window.start) == ("http://127.0.0.1:9", start)
    # at midnight a day is over and due
    assert spec.window.safety_lag == timedelta(0)


def test_a_compiled_spec_does_not_change_with_the_registry(engine: Engine) -> None:
    load_text(engine, GOOD)
    compiled = compile_spec(engine, "demo", "items", Operation.HARVEST, now=NOW)
    kept = repr(compiled)
    set_base_url(engine, "demo", "https://elsewhere.test", now=LATER)
    load_text(engine, GOOD.replace("page_size: 100", "page_size: 10"), now=LATER)
    assert repr(compiled) == kept
    assert compile_spec(engine, "demo", "items", Operation.HARVEST, now=LATER).spec != compiled.spec


def test_the_number_of_queries_does_not_grow_with_sources(engine: Engine) -> None:
    def queries_of_all() -> int:
        seen: list[str] = []

        def note(*arguments: Any) -> None:
            seen.append(arguments[2])

        event.listen(engine, "before_cursor_execute", note)
        compile_all(engine, NOW)
        event.remove(engine, "before_cursor_execute", note)
        return len(seen)

    load_text(engine, GOOD)
    one = queries_of_all()
    for number in range(5):
        load_text(engine, GOOD.replace("code: demo", f"code: demo{number}"))
    assert queries_of_all() == one
    assert len(compile_all(engine, NOW)) == 6


def test_dictionaries_are_seeded_and_extended_by_a_file(engine: Engine) -> None:
    extra = "dictionaries:\n  - {type: subject, name: Subjects, items: [{code: MED, name: Medicine}]}\n"
    load_text(engine, extra + GOOD)
    with engine.connect() as connection:
        item = tables.sys_dict_item.c
        assert connection.scalar(select(item.item_name).where(item.type_code == "subject")) == "Medicine"
        assert connection.scalar(select(func.count()).where(item.type_code == "http_method")) == 2


def test_the_example_of_the_documentation_is_a_file_that_loads(engine: Engine) -> None:
    text = Path(ROOT, "docs", "ingest.md").read_text(encoding="utf-8")
    example = text.partition("```yaml\n")[2].partition("```")[0]
    assert load_text(engine, example) != []
    assert set(compile_all(engine, NOW)[0].specs) == set(Operation)


def test_a_problem_of_an_endpoint_is_told_at_its_own_line(engine: Engine) -> None:
    content = GOOD.replace("        output:", "        retry: {max_retries: 99}\n        output:")
    with pytest.raises(RegistryFileError) as refused:
        load_text(engine, content)
    (problem,) = refused.value.problems
    assert problem.startswith("sources.yaml:42: demo: retry.max_retries: "), problem


def test_a_problem_of_a_parameter_is_told_at_its_own_line(engine: Engine) -> None:
    with pytest.raises(RegistryFileError) as refused:
        load_text(engine, GOOD.replace("window.to, 'ISO'", "window.end, 'ISO'"))
    (problem,) = refused.value.problems
    assert problem.startswith("sources.yaml:41: demo: params.expr (items): "), problem


def test_a_source_may_have_its_own_word_for_a_code(engine: Engine) -> None:
    word = GOOD.replace("type: OFFSET", "type: SKIP")
    with pytest.raises(RegistryFileError, match=r"pagination\.type: expected one of OFFSET"):
        load_text(engine, word)
    aliases = (
        "dictionaries:\n  - {type: pagination_mode, items: [{code: OFFSET, aliases: [{source: demo, code: SKIP}]}]}\n"
    )
    load_text(engine, aliases + word)
    spec = compile_spec(engine, "demo", "items", Operation.HARVEST, now=NOW).spec
    assert spec.pagination.type is PaginationType.OFFSET
    assert load_text(engine, aliases + word, now=LATER) == []
