"""`platform ingest run` that somebody stops: it begins nothing more, and says what goes on without it."""

import os
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from platform_defs.demo_source.registry import load_demo_sources
from platform_defs.demo_source.server import DemoSettings, running_server
from platform_defs.ingest.identity import id_number
from platform_defs.ingest.planning.signals import add_signals
from platform_defs.store.tables.ingest import ing_plan, ing_task
from tests.e2e.platform_up import PLATFORM
from tests.ingest.demo.demo_client import DemoClient
from tests.ingest.planning.test_planner import rows_of
from tests.needs import ROOT
from tests.waiting import PATIENCE_S, until

BUCKETS = 16


def stopped(engine: Engine, home: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a run that gets Ctrl-C while it waits for its source."""
    with running_server(DemoSettings()) as url:
        demo = DemoClient(url)
        load_demo_sources(engine, url, now=datetime.now(UTC))
        demo.make_trouble("hold", times=1000)
        environment = os.environ | {
            "PLATFORM_HOME": str(home),
            "PLATFORM_DB_URL": engine.url.render_as_string(hide_password=False),
        }
        process = subprocess.Popen(
            [*PLATFORM, "ingest", "run", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            until("the source to be asked", lambda: demo.requests()["held"] or process.poll() is not None)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
            process.communicate()
    return process.returncode, out, err


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_an_update_that_is_stopped_plans_no_further_bucket(engine: Engine, tmp_path: Path) -> None:
    ids = {id_number(str(number)) % BUCKETS: str(number) for number in range(40_000_000, 40_000_500)}
    asked = [ids[bucket] for bucket in (0, 1)]
    now = datetime.now(UTC)
    add_signals(engine, "demo_pubmed", "search", asked, reason=None, requested_by="test", now=now)
    code, out, err = stopped(engine, tmp_path, "demo_pubmed", "search", "--operation", "update")
    assert (code, len(out.splitlines())) == (1, 1)
    assert [plan.plan_key for plan in rows_of(engine, ing_plan)] == [f"demo_pubmed:search:UPDATE:b0of{BUCKETS}:g1"]
    assert "stopped: 1 bucket not complete" in err
    assert "`platform ingest cancel demo_pubmed search --operation update --bucket 0` takes it back" in err


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_backfill_that_is_stopped_says_which_windows_stay_in_the_queue(engine: Engine, tmp_path: Path) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    start = f"{today - timedelta(days=2):%F}"
    arguments = ("demo_crossref", "works", "--operation", "backfill", "--from", start, "--to", f"{today:%F}")
    code, _, err = stopped(engine, tmp_path, *arguments)
    assert code == 1
    assert "stopped: 2 windows not complete" in err
    assert f"--operation backfill --from {start}T00:00 --to {today:%F}T00:00` takes it back" in err
    assert {(task.status_code, task.lease_owner) for task in rows_of(engine, ing_task)} == {("QUEUED", None)}
