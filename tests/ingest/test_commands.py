"""`platform ingest`, as an operator types it: what is misspelt or cannot be done never looks like success."""

import itertools
import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from platform_defs.api.ingest.metrics import IngestCollector
from platform_defs.cli import main
from platform_defs.ingest.codes import Operation, TaskStatus, Trigger
from platform_defs.ingest.planning.cancelling import PlanChoice, cancel_plans
from platform_defs.ingest.planning.planner import plan_bucket, plan_window
from platform_defs.ingest.planning.slices import id_slice
from platform_defs.ingest.planning.windows import WindowGrid
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_plan, ing_signal
from tests.ingest.planning.test_planner import end_tasks, rows_of
from tests.ingest.registry.making import GOOD, load_text

Run = Callable[..., tuple[int, str]]
START = datetime.now(UTC) - timedelta(days=3)


@pytest.fixture
def run(engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Exit code and the last line of stderr of `platform ingest …` over a Registry with the source demo."""
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    content = GOOD.replace("start: 2026-01-01", f"start: {START:%F}")
    for role in ("SEARCH", "DETAIL"):
        content = content.replace(f"role: {role}", f"role: {role}\n        id_ignores_case: true")
    load_text(engine, content, now=datetime.now(UTC))

    def command(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["platform", "ingest", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), (capsys.readouterr().err.splitlines() or [""])[-1]

    return command


def test_a_range_without_windows_is_an_error_and_not_a_success(engine: Engine, run: Run) -> None:
    code, told = run("run", "demo", "items", "--from", "2026-02-01", "--to", "2026-01-01")
    assert (code, told) == (
        1,
        "platform: expected a begin before the end, got 2026-02-01 00:00:00 and 2026-01-01 00:00:00 UTC",
    )
    code, told = run("run", "demo", "items", "--from", "2020-01-01", "--to", "2020-01-05")
    assert (code, told.startswith("platform: no window of demo/items is over between 2020-01-01")) == (1, True)
    assert told.endswith("each is 24 hours long")
    assert f"they begin on {START:%F}" in told
    assert rows_of(engine, ing_plan) == []


def test_an_option_that_would_be_left_out_is_refused(engine: Engine, run: Run) -> None:
    assert run("run", "demo", "items", "--operation", "update", "--from", "2026-01-01") == (
        2,
        "Error: an update has buckets and no windows: use --bucket instead of --from and --to",
    )
    assert run("run", "demo", "items", "--bucket", "1")[0] == 2
    code, told = run("run", "demo", "items", "--operation", "update", "--bucket", "4096")
    assert (code, told.startswith("platform: --bucket: expected 0 to ")) == (1, True)
    assert rows_of(engine, ing_plan) == []


@pytest.mark.parametrize("command", [("windows",), ("unblock",), ("signal", "1"), ("run",)])
def test_a_name_that_is_misspelt_is_told(run: Run, command: tuple[str, ...]) -> None:
    name, *more = command
    assert run(name, "dmeo", "items", *more) == (
        1,
        "platform: no active source has the code 'dmeo'; `platform registry list` shows all",
    )
    assert run(name, "demo", "itmes", *more) == (1, "platform: source demo has no endpoint 'itmes'; it has item, items")


def test_a_signal_is_for_an_endpoint_with_an_update_and_for_the_id_as_it_is_stored(engine: Engine, run: Run) -> None:
    code, told = run("signal", "demo", "item", "1")
    assert (code, told.startswith("platform: demo/item has no update")) == (1, True)
    assert run("signal", "demo", "items", "10.1000/ABC")[0] == 0
    [signal] = read(engine, lambda connection: connection.execute(select(ing_signal)).all())
    assert signal.provider_id == "10.1000/abc"


def test_buckets_that_are_not_complete_are_listed_with_their_reasons(
    engine: Engine, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("windows", "demo", "items", "--operation", "update")
    assert run(*asked)[0] == 0
    compiled = compile_spec(engine, "demo", "items", Operation.UPDATE, now=datetime.now(UTC))
    drafts = [id_slice(compiled.spec, 3, ["a"], number=1)]
    now = datetime.now(UTC)
    for minutes in (0, 1):
        plan_bucket(engine, compiled, 3, drafts, schedule_instance_id=1, trigger=Trigger.SIGNAL, now=now)
        cancelled_at = now + timedelta(minutes=minutes)
        cancel_plans(engine, "demo", "items", Operation.UPDATE, PlanChoice(), reason="wrong key", now=cancelled_at)
    monkeypatch.setattr(sys, "argv", ["platform", "ingest", *asked, "--json"])
    with pytest.raises(SystemExit, match="1"):
        main()
    [shown] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (shown["bucket"], shown["status"], shown["plan"][-3:]) == ("3", "cancelled", ":g2")
    assert shown["reason"].endswith("UTC: wrong key")
    again = "`platform ingest run demo items --operation update --bucket N` tries them again; so does Materialize"
    assert run(*asked) == (1, again)


@pytest.mark.parametrize("operation", [Operation.BACKFILL, Operation.UPDATE])
def test_status_names_the_command_that_says_why_something_was_given_up(
    engine: Engine, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, operation: Operation
) -> None:
    now = datetime.now(UTC)
    compiled = compile_spec(engine, "demo", "items", operation, now=now)
    asked = {"schedule_instance_id": 1, "trigger": Trigger.MANUAL, "now": now}
    if operation is Operation.UPDATE:
        planned = plan_bucket(engine, compiled, 3, [id_slice(compiled.spec, 3, ["a"], number=1)], **asked)
    else:
        window = next(WindowGrid.of(compiled.spec.window).windows_up_to(START, now))
        planned = plan_window(engine, compiled, window, **asked)
    end_tasks(engine, planned.plan_id, TaskStatus.FAILED)
    monkeypatch.setattr(sys, "argv", ["platform", "ingest", "status"])
    with pytest.raises(SystemExit):
        main()
    told = capsys.readouterr().out.splitlines()[-1]
    command = re.fullmatch("(?:windows|buckets) of failed and partial tasks are not complete: `(.*)` says why", told)
    assert command is not None
    assert run(*command[1].removeprefix("platform ingest ").split())[0] == 1, "it finds something"


def test_windows_of_an_endpoint_that_is_gone_are_still_named_and_can_be_taken_back(
    engine: Engine, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    compiled = compile_spec(engine, "demo", "items", Operation.HARVEST, now=now)
    window = next(WindowGrid.of(compiled.spec.window).windows_up_to(START, now))
    plan_window(engine, compiled, window, schedule_instance_id=1, trigger=Trigger.MANUAL, now=now)
    monkeypatch.setattr(sys, "argv", ["platform", "registry", "base-url", "demo", "http://127.0.0.1:9"])
    with pytest.raises(SystemExit):
        main()
    told = capsys.readouterr().err
    assert "demo/items: 1 harvest window under way goes on with what held before; to begin anew run" in told
    assert "`platform ingest cancel demo items --all`, then `platform ingest run demo items`" in told
    gone = GOOD.replace("name: items", "name: things")
    assert gone != GOOD
    load_text(engine, gone, now=datetime.now(UTC))
    assert run("windows", "demo", "items")[0] == 1
    assert run("status", "--json")[0] == 0

    def shown(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["platform", "ingest", *arguments])
        with pytest.raises(SystemExit):
            main()
        return capsys.readouterr().out

    advice = "`platform ingest cancel demo items --operation harvest --all` takes this back"
    assert f"demo/items is gone from the Registry: {advice}" in shown("status")
    assert run("cancel", "demo", "items", "--operation", "harvest", "--all")[0] == 0
    assert shown("status") == "no task waits or was given up, and no endpoint is blocked\n"


@pytest.mark.parametrize("change", ["smaller windows", "a later start"])
def test_a_window_that_is_none_any_more_is_neither_called_given_up_nor_cancelled(
    engine: Engine, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """`status` and the metrics would count it for ever, while `windows` says that nothing is open."""
    now = datetime.now(UTC)
    compiled = compile_spec(engine, "demo", "items", Operation.HARVEST, now=now)
    failed, cancelled = itertools.islice(WindowGrid.of(compiled.spec.window).windows_up_to(START, now), 2)
    for window in (failed, cancelled):
        planned = plan_window(engine, compiled, window, schedule_instance_id=1, trigger=Trigger.MANUAL, now=now)
        if window == failed:
            end_tasks(engine, planned.plan_id, TaskStatus.FAILED)
    cancel_plans(engine, "demo", "items", Operation.HARVEST, PlanChoice(start=cancelled.start), reason=None, now=now)

    def shown() -> str:
        monkeypatch.setattr(sys, "argv", ["platform", "ingest", "status"])
        with pytest.raises(SystemExit):
            main()
        metrics = {metric.name: metric.samples for metric in IngestCollector(engine).collect()}
        return capsys.readouterr().out + str(metrics["platform_ingest_given_up"])

    assert "failed" in shown()
    assert "are not complete: `platform ingest windows demo items` says why\n" in shown()
    assert "cancelled harvest windows: 1" in shown()
    content = GOOD.replace("start: 2026-01-01", f"start: {START:%F}")
    if change == "smaller windows":
        load_text(engine, content.replace("size: 1d", "size: 12h"), now=datetime.now(UTC))
        compiled = compile_spec(engine, "demo", "items", Operation.HARVEST, now=datetime.now(UTC))
        for window in WindowGrid.of(compiled.spec.window).windows_touching(failed.start, cancelled.end):
            planned = plan_window(engine, compiled, window, schedule_instance_id=1, trigger=Trigger.MANUAL, now=now)
            end_tasks(engine, planned.plan_id)
    else:
        load_text(engine, GOOD.replace("start: 2026-01-01", f"start: {cancelled.end:%F}"), now=datetime.now(UTC))
    assert shown() == "no task waits or was given up, and no endpoint is blocked\n[]"
    assert run("windows", "demo", "items")[0] == 0
