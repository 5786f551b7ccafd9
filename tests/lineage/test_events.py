"""Parsing one event: lenient where producers are sloppy, strict where meaning would be lost."""

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from platform_defs.lineage.errors import EventRefused, InvalidEvent
from platform_defs.lineage.events import EventKind, fingerprint, parse_event
from tests.lineage.wire import RUN_ID, dataset, run_event


def test_a_run_event_is_read_with_all_that_the_columns_hold() -> None:
    event = parse_event(run_event(inputs=[dataset("ns", "a")], outputs=[dataset("ns", "b")]))
    assert event.kind is EventKind.RUN
    assert event.event_time == datetime(2025, 3, 14, 8, 58, 29, 169_000, tzinfo=UTC)
    assert (event.event_type, event.run_id) == ("COMPLETE", RUN_ID)
    assert (event.job_namespace, event.job_name) == ("prod", "daily")
    assert [found.name for found in event.datasets] == ["a", "b"]


def test_the_kind_is_told_by_what_is_there() -> None:
    run, job = run_event(), run_event(run=None)
    about = {"eventTime": "2024-05-01", "dataset": dataset("ns", "t")}
    assert [parse_event(raw).kind for raw in (run, job, about)] == [EventKind.RUN, EventKind.JOB, EventKind.DATASET]
    assert parse_event(run | {"dataset": dataset("ns", "t")}).kind is EventKind.RUN


@pytest.mark.parametrize(
    "sloppy",
    [
        {"schemaURL": None, "producer": None},
        {"inputs": None, "outputs": None},
        {"eventType": None},
        {"eventTime": 1636646662.687894},
        {"run": {"runId": "not-a-uuid", "facets": None}},
        {"job": {"namespace": "n", "name": "j", "facets": None}},
        {"inputs": [{"namespace": "n", "name": "t", "facets": None}]},
        {"inputs": [{"namespace": "n", "name": "t", "facets": {"schema": None, "symlinks": "odd"}}]},
    ],
)
def test_sloppy_events_are_taken(sloppy: dict[str, Any]) -> None:
    raw = run_event(**sloppy)
    parse_event(raw)
    parse_event({key: value for key, value in raw.items() if value is not None})


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("eventTime", {"eventTime": None}),
        ("eventTime", {"eventTime": "soon"}),
        ("eventTime", {"eventTime": True}),
        ("eventType", {"eventType": "X" * 33}),
        ("eventType", {"eventType": 1}),
        ("run", {"run": None, "job": None}),
        ("run", {"run": "abc"}),
        ("run.runId", {"run": {}}),
        ("run.runId", {"run": {"runId": ""}}),
        ("run.runId", {"run": {"runId": "x" * 37}}),
        ("job.namespace", {"job": None}),
        ("job.namespace", {"job": {"name": "j"}}),
        ("job.name", {"job": {"namespace": "n", "name": "  "}}),
        ("job.name", {"job": {"namespace": "n", "name": "x" * 256}}),
        ("job.namespace", {"job": {"namespace": "x" * 256, "name": "j"}}),
        ("job.facets", {"job": {"namespace": "n", "name": "j", "facets": []}}),
        ("producer", {"producer": "x" * 513}),
        ("inputs", {"inputs": {}}),
        ("inputs[1]", {"inputs": [dataset("n", "t"), None]}),
        ("outputs[0].name", {"outputs": [{"namespace": "n"}]}),
        ("outputs[0].facets", {"outputs": [{"namespace": "n", "name": "t", "facets": [1]}]}),
        ("dataset.namespace", {"run": None, "dataset": {"name": "t"}}),
    ],
)
def test_what_would_lose_meaning_is_refused_by_its_field(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidEvent) as refused:
        parse_event(run_event(**changes))
    assert refused.value.field == field
    assert (refused.value.code, refused.value.status) == (400, "bad_request")
    assert str(refused.value).startswith(f"{field}: expected")


@pytest.mark.parametrize("raw", [None, [], "event", 1, {}])
def test_what_is_no_event_at_all_is_refused(raw: object) -> None:
    with pytest.raises(EventRefused):
        parse_event(raw)


@pytest.mark.parametrize(
    "value",
    ["lone \ud800 surrogate", float("nan"), float("inf"), 10**400, -(10**309), {"\udfff": 1}],
    ids=["surrogate", "nan", "infinity", "huge", "huge negative", "surrogate key"],
)
def test_what_a_store_cannot_hold_is_refused_by_its_path(value: object) -> None:
    raw = run_event(inputs=[dataset("n", "t", custom={"deep": [1, value]})])
    with pytest.raises(InvalidEvent) as refused:
        parse_event(raw)
    assert "inputs[0].facets.custom.deep[1]" in refused.value.field
    assert refused.value.field.isprintable()


def test_long_digits_in_a_text_and_large_integers_that_a_double_can_hold_are_taken() -> None:
    parse_event(run_event(producer="1" * 400, extra={"n": 10**300, "t": "1" * 400}))


def test_nesting_ends_at_a_hundred_levels_however_deep_it_goes() -> None:
    def nested(levels: int) -> dict[str, Any]:
        inner: Any = 1
        for _ in range(levels - 1):  # the event itself is the first level
            inner = [inner]
        return run_event(extra=inner)

    parse_event(nested(100))
    for levels in (101, 50_000):
        with pytest.raises(InvalidEvent, match="nested at most 100"):
            parse_event(nested(levels))


def test_a_key_that_mysql_cannot_hold_is_refused_everywhere() -> None:
    parse_event(run_event(extra={"k" * 65535: 1}))
    for key in ("k" * 65536, "键" * 22_000):
        with pytest.raises(InvalidEvent, match="65535 bytes"):
            parse_event(run_event(extra={key: 1}))


def test_the_fingerprint_depends_on_content_and_tenant_and_not_on_the_order_of_keys() -> None:
    raw = run_event()
    again = json.loads(json.dumps(dict(reversed(raw.items()))))
    assert fingerprint(1, parse_event(raw)) == fingerprint(1, parse_event(again))
    other = copy.deepcopy(raw)
    other["job"]["facets"] = {"x": {}}
    marks = {fingerprint(1, parse_event(raw)), fingerprint(2, parse_event(raw)), fingerprint(1, parse_event(other))}
    assert len(marks) == 3
    assert all(len(mark) == 64 for mark in marks)


def test_the_size_is_that_of_the_canonical_text() -> None:
    raw = run_event(note="键")
    text = json.dumps(raw, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert parse_event(raw).size == len(text.encode())
