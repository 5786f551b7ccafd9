"""What `platform runner status` tells while nothing runs, and of a queue."""

import json
from datetime import UTC, datetime, timedelta

from platform_defs.store.engine import open_engine
from platform_defs.work import leases, rows, runners
from platform_defs.work.sensor_ticks import note_tick
from tests.commands.command_line import RunPlatform
from tests.work.living import living_runner


def test_sensors_of_a_platform_that_does_not_run_are_not_called_stuck(run_platform: RunPlatform) -> None:
    engine = open_engine(json.loads(run_platform("db", "status", "--json")[1])["database"])
    note_tick(engine, "arrivals", "it could not begin what is due")
    engine.dispose()
    code, out, err = run_platform("runner", "status")
    assert (code, out) == (1, "0 waiting, 0 running\n")
    assert err == "platform: no runner is alive; `platform up` or `platform runner` starts one\n"


def test_programs_read_of_the_queue_what_people_see(run_platform: RunPlatform) -> None:
    engine = open_engine(json.loads(run_platform("db", "status", "--json")[1])["database"])
    living_runner(engine, busy=1)
    (runner,) = runners.living_runners(engine)
    rows.enqueue(engine, "selfcheck", {})
    assert len(leases.claim(engine, runner.name, 1)) == 1
    rows.enqueue(engine, "selfcheck", {})
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    for hours in (0, 1):
        rows.enqueue(engine, "selfcheck", {}, not_before=due + timedelta(hours=hours))
    engine.dispose()
    code, out, _ = run_platform("runner", "status", "--json")
    found = json.loads(out)
    assert (code, found["queued"], found["running"]) == (0, 1, 1)
    assert found["later"] == {"queued": 2, "until": due.isoformat()}
    assert [(one["name"], one["startedAt"]) for one in found["runners"]] == [
        (runner.name, runner.started_at.isoformat())
    ]
    shown = run_platform("runner", "status")[1]
    assert "1 waiting, 1 running\n" in shown
    assert f"2 more wait for a time of their own, such as tries after a failure, until {due:%F %T} UTC" in shown
