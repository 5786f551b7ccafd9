"""Runs of chains that are executed as Dagster runs in this process, as the process of the runner does it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterInstance, DagsterRun
from dagster._grpc.impl import core_execute_run
from dagster._utils.hosted_user_process import recon_job_from_origin
from sqlalchemy import Engine

from platform_defs.chain_nodes.catalogue import all_node_types
from platform_defs.chains.definitions import Chain, create_chain
from platform_defs.chains.runs.starting import start_chain
from platform_defs.runner import parking
from platform_defs.runner.kinds_of_work import job_launch
from platform_defs.runner.recorded_runs import record_run
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from platform_defs.work import leases, rows
from platform_defs.work.processes import ProcessId
from platform_defs.work.rows import Status


def print_node(node_id: str, *depends_on: str, **other: Any) -> dict[str, Any]:
    return _node(node_id, "print", {"message": f"I am {node_id}"}, depends_on, other)


def shell(node_id: str, command: str, *depends_on: str, **other: Any) -> dict[str, Any]:
    return _node(node_id, "shell", {"command": command}, depends_on, other)


def needs_file(node_id: str, file: Path, *depends_on: str, **other: Any) -> dict[str, Any]:
    """A node that fails unless a file exists."""
    return shell(node_id, f"test -e {file}", *depends_on, **other)


def _node(node_id: str, kind: str, cfg: dict[str, Any], above: Sequence[str], other: dict[str, Any]) -> dict[str, Any]:
    return {"id": node_id, "type": kind, "cfg": cfg, "dependsOn": list(above), **other}


class Shown:
    """A database and a Dagster instance of their own."""

    def __init__(self, engine: Engine, instance: DagsterInstance) -> None:
        self.engine = engine
        self.instance = instance

    def chain(self, name: str, nodes: Sequence[Mapping[str, Any]]) -> Chain:
        dag_json = {"job": name, "nodes": list(nodes)}
        types = all_node_types(self.engine)
        return create_chain(self.engine, types, name=name, description=None, dag_json=dag_json, actor="test")

    def start(self, chain: Chain, **params: Any) -> str:
        return start_chain(self.engine, chain.chain_id, params=params, actor="test", trigger="test").run_id

    def execute_queued(self) -> list[DagsterRun]:
        """Executes what is queued, one after the other, until nothing is due any more."""
        done = []
        while claimed := leases.claim(self.engine, "test", 1):
            done.append(self.execute(claimed[0]))
        return done

    def execute(self, row: rows.Work) -> DagsterRun:
        order = {"id": row.id, "kind": row.kind, "payload": row.payload, "run_id": row.run_id}
        leases.mark_started(self.engine, "test", row.id, ProcessId.current())
        run = self.instance.get_run_by_id(row.run_id)
        is_resumed = run is not None
        if run is None:
            run = record_run(self.instance, self.engine, Settings.load(), order, job_launch(row.kind, row.payload), {})
        job = recon_job_from_origin(run.job_code_origin)
        execution = core_execute_run(job, run, self.instance, inject_env_vars=False, resume_from_failure=is_resumed)
        for event in execution:
            if parking.leaves(event, execution):
                return run
        rows.finish(self.engine, row.id, Status.SUCCEEDED)
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found

    def events(self, run: DagsterRun) -> list[tuple[str, str]]:
        """Step key and kind of each event of a step."""
        return [
            (str(entry.dagster_event.step_key), entry.dagster_event.event_type_value)
            for entry in self.instance.all_logs(run.run_id)
            if entry.dagster_event is not None and entry.dagster_event.step_key is not None
        ]

    def step(self, run: DagsterRun, key: str) -> list[str]:
        return [kind for step, kind in self.events(run) if step == key]

    def said(self, run: DagsterRun) -> list[str]:
        """What the UI shows of events of the run as a whole."""
        events = [entry.dagster_event for entry in self.instance.all_logs(run.run_id)]
        return [event.message or "" for event in events if event is not None and event.is_engine_event]

    def logged(self, run: DagsterRun) -> list[str]:
        return [entry.user_message for entry in self.instance.all_logs(run.run_id)]


@contextmanager
def shown(folder: Path) -> Iterator[Shown]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PLATFORM_HOME", str(folder))
        patched.setenv("PLATFORM_CHAIN_SHELL", "true")
        patched.setattr(parking, "_is_allowed", True)
        engine = open_engine(Settings.load().database_url)
        migrate.upgrade(engine)
        with DagsterInstance.local_temp(str(folder)) as instance:
            yield Shown(engine, instance)
            # a process of the runner ends with these; this one goes on, and would complain about them at its end
            while parking._LEFT:
                parking._LEFT.pop().close()  # type: ignore[attr-defined]
        engine.dispose()
