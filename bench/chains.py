"""Runs of chains against bare Dagster jobs of the same shape, and against themselves, in one run of this program.

    .venv/bin/python -m bench.chains [RUNS]

Everything happens in this process, on embedded stores: each run is recorded and executed as the process of the runner
does it, without the time of the start. A bare job has ops that do nothing and Dagster's in_process executor; a chain
has nodes of type print, whose states are also written into the platform's tables.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dagster import DagsterInstance, DagsterRun, DagsterRunStatus, JobDefinition, build_reconstructable_job
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._grpc.impl import core_execute_run

Nodes = Sequence[tuple[str, list[str]]]
PARALLEL = 8


def line(size: int) -> Nodes:
    return [(f"n{number}", [f"n{number - 1}"] if number else []) for number in range(size)]


def fan(size: int) -> Nodes:
    return [(f"n{number}", []) for number in range(size)]


def bare_job(nodes: list[tuple[str, list[str]]]) -> JobDefinition:
    from dagster import (
        DependencyDefinition,
        GraphDefinition,
        In,
        MultiDependencyDefinition,
        Nothing,
        Out,
        in_process_executor,
        op,
    )
    from dagster._core.definitions.dependency import NodeInvocation

    @op(name="nothing", ins={"after": In(Nothing)}, out=Out(Nothing))
    def nothing() -> None: ...

    dependencies: dict[NodeInvocation, Any] = {
        NodeInvocation("nothing", name): {"after": MultiDependencyDefinition([DependencyDefinition(a) for a in above])}
        if above
        else {}
        for name, above in nodes
    }
    return GraphDefinition("bare", node_defs=[nothing], dependencies=dependencies).to_job(
        executor_def=in_process_executor
    )


class Site:
    """A platform without processes: its database, its Dagster instance, and the queue of rows of work."""

    def __init__(self, instance: DagsterInstance) -> None:
        from platform_defs.connections import open_database
        from platform_defs.settings import Settings
        from platform_defs.upgrade import upgrade_stores

        self.instance = instance
        self.settings = Settings.load()
        upgrade_stores(self.settings)
        self._opened = open_database(self.settings)
        self.engine = self._opened.__enter__()

    def bare(self, nodes: Nodes) -> float:
        """Seconds to record and execute a bare job."""
        began = time.perf_counter()
        job = build_reconstructable_job("bench.chains", "bare_job", (list(nodes),))
        run = self.instance.create_run_for_job(job.get_definition(), job_code_origin=job.get_python_origin())
        self._execute(job, run)
        return time.perf_counter() - began

    def chain(self, nodes: Nodes, command: str | None = None) -> float:
        """Seconds to record and execute the run of a chain that was started before."""
        from platform_defs.chain_nodes.catalogue import all_node_types
        from platform_defs.chains.definitions import create_chain
        from platform_defs.chains.runs.starting import start_chain
        from platform_defs.runner.kinds_of_work import job_launch
        from platform_defs.runner.recorded_runs import record_run
        from platform_defs.work import leases, rows

        action = {"type": "print", "cfg": {"message": "x"}}
        if command is not None:
            action = {"type": "shell", "cfg": {"command": command}}
        dag = {"nodes": [{"id": name, "dependsOn": above, **action} for name, above in nodes]}
        types = all_node_types(self.engine, self.settings)
        name = f"chain{time.monotonic_ns()}"
        chain = create_chain(self.engine, types, name=name, description=None, dag_json=dag, actor="bench")
        start_chain(self.engine, chain.chain_id, actor="bench", trigger="bench")
        (row,) = leases.claim(self.engine, "bench", 1)
        order = {"id": row.id, "kind": row.kind, "payload": row.payload, "run_id": row.run_id}
        began = time.perf_counter()
        run = record_run(self.instance, self.engine, self.settings, order, job_launch(row.kind, row.payload), {})
        assert run.job_code_origin is not None
        from dagster._utils.hosted_user_process import recon_job_from_origin

        self._execute(recon_job_from_origin(run.job_code_origin), run)
        elapsed = time.perf_counter() - began
        rows.finish(self.engine, row.id, rows.Status.SUCCEEDED)
        return elapsed

    def _execute(self, job: ReconstructableJob, run: DagsterRun) -> None:
        for _ in core_execute_run(job, run, self.instance, inject_env_vars=False):
            pass
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        assert found.status is DagsterRunStatus.SUCCESS, found.status


def median(measure: Callable[[], float], runs: int) -> float:
    return statistics.median(measure() for _ in range(runs))


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    from platform_defs import dagster_instance
    from platform_defs.settings import Settings

    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"PLATFORM_HOME": home, "PLATFORM_CHAIN_SHELL": "true", "DAGSTER_TELEMETRY_DISABLED": "1"}
        os.environ["DAGSTER_HOME"] = str(dagster_instance.prepare(Settings.load()))
        with DagsterInstance.get() as instance:
            site = Site(instance)
            site.bare(fan(2))
            site.chain(fan(2))
            print(f"recorded and executed in one process, embedded stores, median of {runs} runs; aims in brackets")
            for shape in (line, fan):
                bare = median(partial(site.bare, shape(20)), runs)
                ours = median(partial(site.chain, shape(20)), runs)
                print(f"  20 nodes, {shape.__name__}: bare {bare:.2f} s, chain {ours:.2f} s, {ours / bare:.2f}x (1.2x)")
            twenty = median(lambda: site.chain(line(20)), runs) / 20
            many = median(lambda: site.chain(line(500)), max(1, runs // 3)) / 500
            text = f"500 in a line {1000 * many:.1f} ms, 20 in a line {1000 * twenty:.1f} ms"
            print(f"  per node: {text}, {many / twenty:.2f}x (1.5x)")
            ideal = float(-(-20 // PARALLEL))
            waits = median(lambda: site.chain(fan(20), "sleep 1"), max(1, runs // 3))
            ratio = f"{waits / ideal:.2f}x the ideal {ideal:.0f} s (1.3x)"
            print(f"  20 nodes of 1 s, {PARALLEL} at a time: {waits:.2f} s, {ratio}")


if __name__ == "__main__":
    main()
