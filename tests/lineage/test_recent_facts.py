"""An event that repeats what an earlier run said is not read again, and never gets the facts of another event."""

import copy
import uuid
from typing import Any

import pytest

from platform_defs.access.principal import SourceType
from platform_defs.lineage.events import parse_event
from platform_defs.lineage.extract.compute import recent
from platform_defs.lineage.extract.compute.lineage import lineage_facts
from platform_defs.lineage.extract.compute.names import LogicalTables
from platform_defs.lineage.extract.facts_of import Extraction, facts_of
from platform_defs.lineage.facts import Fact, Ref, Statement, weight_of
from platform_defs.lineage.merge.speech.statement_bodies import digest_of, encode
from tests.lineage.test_corpus_parsing import corpus, lacks


def event(**changes: Any) -> dict[str, Any]:
    fields = [{"name": "a", "type": "int"}]
    sources = [{"namespace": "n", "name": "s.in", "field": "k"}]
    said = {
        "eventType": "COMPLETE",
        "eventTime": "2026-01-01T00:00:00Z",
        "producer": "p",
        "run": {"runId": str(uuid.uuid4()), "facets": {"nominalTime": {"at": str(uuid.uuid4())}}},
        "job": {"namespace": "n", "name": "job", "facets": {"sql": {"query": "select 1"}}},
        "inputs": [{"namespace": "n", "name": "s.in", "facets": {"schema": {"fields": fields}}}],
        "outputs": [
            {
                "namespace": "n",
                "name": "s.out",
                "facets": {"schema": {"fields": fields}, "columnLineage": {"fields": {"a": {"inputFields": sources}}}},
            }
        ],
    }
    return said | changes


def read(raw: dict[str, Any], linked: dict[Ref, Ref] | None = None) -> Extraction:
    return facts_of(parse_event(raw), SourceType.COMPUTE, linked or {})


def statement(extraction: Extraction) -> Statement:
    (found,) = (fact for fact in extraction.facts if isinstance(fact, Statement))
    return found


def without_run(extraction: Extraction) -> list[Fact]:
    return [fact.of_run("") if isinstance(fact, Statement) else fact for fact in extraction.facts]


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "_RECENT", recent._Recent(recent.MAX_FACTS))


def test_what_another_run_says_again_is_neither_extracted_nor_encoded_again() -> None:
    first, again = event(), event(eventTime="2026-01-02T00:00:00Z")
    one, two = statement(read(first)), statement(read(again))
    assert two.written is one.written
    assert encode(two) is encode(one)
    assert digest_of(two) == digest_of(one)
    assert (one.run, two.run) == (first["run"]["runId"], again["run"]["runId"])


def test_an_event_without_a_run_is_a_run_of_its_own() -> None:
    said = {key: value for key, value in event().items() if key not in ("run", "eventType")}
    later = said | {"eventTime": "2026-01-02T00:00:00Z"}
    runs = [statement(read(one)).run for one in (said, later)]
    assert runs == [parse_event(one).payload_hash for one in (said, later)]


def changed(*path: Any, to: Any) -> dict[str, Any]:
    said = copy.deepcopy(event())
    inner: Any = said
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return said


DIFFERENT = {
    "job": changed("job", "name", to="other"),
    "text": changed("job", "facets", "sql", "query", to="select 2"),
    "type": changed("eventType", to="START"),
    "producer": changed("producer", to="q"),
    "engine": changed("run", "facets", "processing_engine", to={"name": "Flink"}),
    "input": changed("inputs", 0, "name", to="s.in2"),
    "column type": changed("inputs", 0, "facets", "schema", "fields", 0, "type", to="text"),
    "a number of another type": changed("outputs", 0, "facets", "schema", "fields", 0, "description", to=1.0),
    "a number": changed("outputs", 0, "facets", "schema", "fields", 0, "description", to=1),
    "a number that is too large": changed("outputs", 0, "facets", "schema", "fields", 0, "description", to=10**30),
    "lineage": changed("outputs", 0, "facets", "columnLineage", "fields", "a", "inputFields", 0, "field", to="l"),
    "documentation": changed("outputs", 0, "facets", "documentation", to={"description": "new"}),
    "lifecycle": changed("outputs", 0, "facets", "lifecycleStateChange", to={"lifecycleStateChange": "DROP"}),
    "symlink": changed(
        "outputs", 0, "facets", "symlinks", to={"identifiers": [{"namespace": "n", "name": "x.y", "type": "TABLE"}]}
    ),
    "details": changed("outputs", 0, "facets", "gravitino", to={"columns": [{"name": "a", "nullable": False}]}),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_an_event_that_differs_in_anything_that_counts_has_facts_of_its_own(what: str) -> None:
    usual = read(event())
    found = read(DIFFERENT[what])
    assert repr(without_run(usual)) != repr(without_run(found))
    # twice, because the second time it is remembered
    assert read(DIFFERENT[what]) == found


def test_names_that_mean_other_tables_give_other_facts() -> None:
    own, other = Ref("table", ("n", "n", "s", "in")), Ref("table", ("n", "n", "s", "elsewhere"))
    for _ in range(2):
        assert "elsewhere" not in repr(read(event()).facts)
        assert "elsewhere" in repr(read(event(), {own: other}).facts)


def test_what_is_remembered_is_bounded_and_the_least_used_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = 1 + sum(weight_of(fact) for fact in read(event()).facts)
    monkeypatch.setattr(recent, "_RECENT", recent._Recent(2 * weight))
    jobs = {
        name: event(job={"namespace": "n", "name": name, "facets": {"sql": {"query": "select 1"}}}) for name in "abc"
    }
    a, b = (statement(read(jobs[name])).written for name in "ab")
    assert statement(read(jobs["a"])).written is a
    read(jobs["c"])
    assert statement(read(jobs["a"])).written is a
    assert statement(read(jobs["b"])).written is not b


@pytest.mark.needs("data")
def test_real_events_say_what_they_say_with_all_their_facets() -> None:
    events = [parse_event(raw) for _, raw in corpus() if not lacks(raw)]
    for _ in range(2):
        for one in events:
            whole = lineage_facts(one, LogicalTables(one, {}))
            found = facts_of(one, SourceType.COMPUTE)
            run = one.run_id or one.payload_hash
            assert found.facts == tuple(f.of_run(run) if isinstance(f, Statement) else f for f in whole.facts)
            assert found.sql == whole.sql
