"""The node type `harvest`: fetches windows or buckets of an endpoint of the Registry, as `platform ingest run` does."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

from pydantic import Field
from sqlalchemy import Engine

from platform_defs.chains.nodes.cfg import NodeCfg
from platform_defs.chains.nodes.port import NodeContext, NodeFailed, NodeResult, NodeStopped
from platform_defs.ingest.codes import Operation, Trigger
from platform_defs.ingest.cursors.operations import read_watermark
from platform_defs.ingest.errors import PlanError, SpecError
from platform_defs.ingest.execution.executor import Executor
from platform_defs.ingest.materialisation import (
    IngestEnvironment,
    Listener,
    PartitionResult,
    materialise_bucket,
    materialise_windows,
)
from platform_defs.ingest.opening import open_environment
from platform_defs.ingest.planning.schedule import TriggerContext
from platform_defs.ingest.planning.wanted_windows import parse_instant, wanted_windows
from platform_defs.ingest.spec.model import Spec

THREADS = 4
_SHOWN_REASONS = 5

OpenIngest = Callable[[Engine, int], AbstractContextManager[IngestEnvironment]]


class HarvestCfg(NodeCfg):
    """Fetches windows of an endpoint (an update: buckets) and succeeds when all of them are complete.

    A retry goes on where the attempt before it ended: windows that are complete are not fetched again.
    """

    source: str = Field(min_length=1, description="The code of the source in the Registry.")
    endpoint: str = Field(min_length=1, description="The endpoint of the source.")
    operation: Literal["harvest", "backfill", "update"] = "harvest"
    from_: str | None = Field(
        None, alias="from", description="Begin with the window that contains this time (UTC). Default: what is due."
    )
    to: str | None = Field(None, description="End with the window that contains the moment before this time (UTC).")
    bucket: int | None = Field(None, ge=0, description="Of an update: this bucket alone. Default: all of them.")


class HarvestExecutor:
    name = "harvest"
    cfg_model = HarvestCfg

    def __init__(self, engine: Engine, open_ingest: OpenIngest = open_environment) -> None:
        self._engine = engine
        self._open = open_ingest

    def problems(self, cfg: HarvestCfg) -> Iterator[str]:
        for name, text in (("from", cfg.from_), ("to", cfg.to)):
            try:
                if text is not None:
                    parse_instant(text, f"cfg.{name}")
            except PlanError as error:
                yield str(error)
        if cfg.operation == "update" and (cfg.from_ or cfg.to):
            yield "cfg.from, cfg.to: an update has buckets instead of windows"
        if cfg.operation != "update" and cfg.bucket is not None:
            yield "cfg.bucket: only an update has buckets"

    def execute(self, context: NodeContext, cfg: HarvestCfg) -> NodeResult:
        trigger = TriggerContext(
            Trigger.MANUAL, "chain", scheduler_job_id=context.node_id, scheduler_log_id=context.run_id
        )
        try:
            with self._open(self._engine, THREADS) as environment:
                executor = environment.executor()
                with context.stop.interrupting(executor.cancel.set):
                    spec = environment.compile(cfg.source, cfg.endpoint, Operation(cfg.operation.upper())).spec
                    fetch = _fetch_buckets if spec.operation is Operation.UPDATE else _fetch_windows
                    results = fetch(context, cfg, environment, spec, trigger, executor)
        except SpecError as error:
            raise NodeFailed("; ".join(error.problems), may_retry=False) from None
        except PlanError as error:
            raise NodeFailed(str(error)) from None
        if context.stop.reason is not None:
            raise NodeStopped(context.stop.reason)
        if open_results := [result for result in results if not result.is_complete]:
            raise NodeFailed(_failure_text(open_results, len(results)))
        return NodeResult(artifact=_summary(results))


class _Done:
    """The windows and buckets that are complete, which a later attempt leaves out."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._names: list[str] = list((context.checkpoint or {}).get("complete", []))

    def __contains__(self, name: str) -> bool:
        return name in self._names

    @property
    def listener(self) -> Listener:
        return Listener(on_trouble=self._context.log, on_progress=self._context.log, on_result=self.note)

    def note(self, result: PartitionResult) -> None:
        totals = result.report.totals
        counts = f"{totals.get('inserted', 0)} new, {totals.get('updated', 0)} changed, {result.report.pages} pages"
        self._context.log(f"{_name(result)}: {result.report.status.lower()}, {counts}")
        if result.is_complete:
            self._names.append(_name(result))
            self._context.save_checkpoint({"complete": self._names})


def _fetch_windows(
    context: NodeContext,
    cfg: HarvestCfg,
    environment: IngestEnvironment,
    spec: Spec,
    trigger: TriggerContext,
    executor: Executor,
) -> list[PartitionResult]:
    start = None if cfg.from_ is None else parse_instant(cfg.from_, "cfg.from")
    end = None if cfg.to is None else parse_instant(cfg.to, "cfg.to")
    done = _Done(context)
    windows = wanted_windows(spec, read_watermark(environment.engine, spec), start, end, environment.clock())
    missing = [window for window in windows if str(window) not in done]
    context.log(f"{spec.provenance_code}/{spec.endpoint_name}: {len(missing)} windows to fetch")
    names = (spec.provenance_code, spec.endpoint_name, spec.operation)
    return materialise_windows(environment, *names, missing, trigger, listener=done.listener, executor=executor)


def _fetch_buckets(
    context: NodeContext,
    cfg: HarvestCfg,
    environment: IngestEnvironment,
    spec: Spec,
    trigger: TriggerContext,
    executor: Executor,
) -> list[PartitionResult]:
    done, results = _Done(context), []
    for bucket in range(spec.update_buckets) if cfg.bucket is None else [cfg.bucket]:
        if f"bucket {bucket}" in done or context.stop.reason is not None:
            continue
        names = (spec.provenance_code, spec.endpoint_name)
        result = materialise_bucket(environment, *names, bucket, trigger, listener=done.listener, executor=executor)
        results.append(result)
    return results


def _name(result: PartitionResult) -> str:
    return str(result.window) if result.window is not None else f"bucket {result.bucket}"


def _failure_text(unfinished: Sequence[PartitionResult], total: int) -> str:
    reasons = [f"{_name(result)}: {reason}" for result in unfinished for reason in result.report.unfinished]
    more = f" and {len(reasons) - _SHOWN_REASONS} more" if len(reasons) > _SHOWN_REASONS else ""
    shown = "; ".join(reasons[:_SHOWN_REASONS]) + more
    return f"{len(unfinished)} of {total} windows or buckets are not complete: {shown}"


def _summary(results: Sequence[PartitionResult]) -> dict[str, Any]:
    """What this attempt fetched."""
    totals: dict[str, int] = {"inserted": 0, "updated": 0}
    for result in results:
        for name, count in result.report.totals.items():
            totals[name] = totals.get(name, 0) + count
    return {"partitions": len(results), "pages": sum(result.report.pages for result in results), **totals}
