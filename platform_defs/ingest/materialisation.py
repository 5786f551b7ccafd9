"""Materialises windows and buckets: plans them, drains their plans, and tells of each as soon as it is over.

Runs of Dagster partitions and `platform ingest run` both do just this. The tasks go through the same queue that every
executor uses, so that others may help, and so that what a dead run left is continued by the next one.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Engine, select

from platform_defs.ingest.codes import Operation, PlanStatus, TaskStatus
from platform_defs.ingest.cursors.catching_up import catch_up
from platform_defs.ingest.cursors.operations import read_plan_cursor
from platform_defs.ingest.errors import EndpointBlocked, PlanError, SpecError
from platform_defs.ingest.execution.executor import Executor, OpenSource, utc_now
from platform_defs.ingest.ledger.progress import plan_key_of, plans_progress, why_task_waits
from platform_defs.ingest.ledger.windows import PlanReport, plan_report
from platform_defs.ingest.planning.history import estimate_from_history
from platform_defs.ingest.planning.planner import PlannedWork, plan_bucket, plan_window
from platform_defs.ingest.planning.schedule import TriggerContext, record_compile_failure, record_trigger
from platform_defs.ingest.planning.signals import signal_quarantined
from platform_defs.ingest.planning.update_candidates import due_records, id_slices
from platform_defs.ingest.planning.windows import Window
from platform_defs.ingest.spec.model import CompiledSpec
from platform_defs.ingest.tasks.blocks import why_not_asked
from platform_defs.ingest.tasks.health import HealthWatch, Thresholds
from platform_defs.ingest.tasks.leases import LeasedTask
from platform_defs.ingest.transport.recent_trouble import RecentTrouble
from platform_defs.store.engine import read
from platform_defs.store.tables.ingest import ing_plan

Compile = Callable[[str, str, Operation], CompiledSpec]


@dataclass(frozen=True)
class IngestEnvironment:
    """What ingest works with: the database, a compiler over the Registry, and a way to the sources."""

    engine: Engine
    compile: Compile
    open_source: OpenSource
    clock: Callable[[], datetime] = utc_now
    threads: int = 4
    thresholds: Thresholds = field(default_factory=Thresholds)
    # hears what goes wrong on the way to the sources
    trouble: RecentTrouble = field(default_factory=RecentTrouble)

    def executor(self) -> Executor:
        watch = HealthWatch(self.thresholds)
        return Executor(self.engine, self.open_source, threads=self.threads, watch=watch)


@dataclass(frozen=True)
class PartitionResult:
    """How a window or a bucket ended; a bucket has no window."""

    window: Window | None
    bucket: int | None
    plan: PlannedWork
    report: PlanReport
    # the cursor that the operation moves: a harvest's watermark, or that of the backfill or update alone
    cursor_before: datetime | None = None
    cursor_after: datetime | None = None

    @property
    def is_complete(self) -> bool:
        return self.report.status is PlanStatus.COMPLETED


@dataclass(frozen=True)
class Listener:
    """Is told how the work goes: the plans before anything is fetched, then trouble and progress, and each result.

    Without that, a run over a source that does not answer would seem to do nothing for half an hour.
    """

    on_planned: Callable[[Mapping[Window | int, PlannedWork]], None] = lambda planned: None
    on_trouble: Callable[[str], None] = lambda text: None
    on_progress: Callable[[str], None] = lambda text: None
    on_result: Callable[[PartitionResult], None] = lambda result: None


# How often a listener is told of the progress of work that takes long.
PROGRESS_S = 30.0


def materialise_windows(
    environment: IngestEnvironment,
    provenance_code: str,
    endpoint_name: str,
    operation: Operation,
    windows: Sequence[Window],
    context: TriggerContext,
    *,
    listener: Listener = Listener(),  # noqa: B008  # frozen
    executor: Executor | None = None,
) -> list[PartitionResult]:
    """Plans and fetches the windows; returns their results in the order in which they ended.

    A window that fails stops no other. Windows that are not over yet are not fetched: for them PlanError is raised, but
    only after the others have been fetched.
    """
    compiled, schedule_id = _begin(environment, provenance_code, endpoint_name, operation, context)
    now = environment.clock()
    # a window that ends after this would be called complete although the source may still list records of it
    stable = now - compiled.spec.window.safety_lag
    estimate = estimate_from_history(environment.engine, provenance_code, endpoint_name)
    planned = {
        plan.plan_id: (window, plan)
        for window in windows
        if window.end <= stable
        for plan in [
            plan_window(
                environment.engine,
                compiled,
                window,
                schedule_instance_id=schedule_id,
                trigger=context.trigger,
                estimate=estimate,
                now=now,
            )
        ]
    }
    listener.on_planned(dict(planned.values()))
    names = {plan_id: str(window) for plan_id, (window, _) in planned.items()}
    before = {plan_id: read_plan_cursor(environment.engine, compiled.spec, plan_id) for plan_id in planned}
    results: list[PartitionResult] = []

    def tell(plan_id: int) -> None:
        window, plan = planned[plan_id]
        catch_up(environment.engine, plan_id, environment.clock())
        after = read_plan_cursor(environment.engine, compiled.spec, plan_id)
        report = plan_report(environment.engine, plan_id)
        # only now: if one of the reads above failed, the window is reported at the end
        del planned[plan_id]
        results.append(PartitionResult(window, None, plan, report, before[plan_id], after))
        listener.on_result(results[-1])

    _drain(environment, names, tell, listener, executor)
    for plan_id in list(planned):
        tell(plan_id)  # neither this executor nor another one could go on with it
    if early := [window for window in windows if window.end > stable]:
        raise PlanError(_too_early(operation, early, stable, results))
    return results


def materialise_bucket(
    environment: IngestEnvironment,
    provenance_code: str,
    endpoint_name: str,
    bucket: int,
    context: TriggerContext,
    *,
    listener: Listener = Listener(),  # noqa: B008  # frozen
    executor: Executor | None = None,
) -> PartitionResult:
    """Fetches those records of a bucket again that are stale, made by older expressions, signalled, or set aside.

    Raises PlanError if the source cannot be asked for records by their ids.
    """
    compiled, schedule_id = _begin(environment, provenance_code, endpoint_name, Operation.UPDATE, context)
    if compiled.spec.detail is None:
        raise PlanError(f"{provenance_code}/{endpoint_name} cannot be asked for records by their ids")
    now = environment.clock()
    signal_quarantined(environment.engine, provenance_code, endpoint_name, now)
    due = due_records(environment.engine, compiled.spec, bucket, now)
    plan = plan_bucket(
        environment.engine,
        compiled,
        bucket,
        id_slices(compiled.spec, bucket, due.ids),
        due=due.counts,
        schedule_instance_id=schedule_id,
        trigger=context.trigger,
        now=now,
    )
    listener.on_planned({bucket: plan})
    before = read_plan_cursor(environment.engine, compiled.spec, plan.plan_id)
    _drain(environment, {plan.plan_id: f"bucket {bucket}"}, lambda plan_id: None, listener, executor)
    catch_up(environment.engine, plan.plan_id, environment.clock())
    after = read_plan_cursor(environment.engine, compiled.spec, plan.plan_id)
    result = PartitionResult(None, bucket, plan, plan_report(environment.engine, plan.plan_id), before, after)
    listener.on_result(result)
    return result


def drain_everything(environment: IngestEnvironment, listener: Listener) -> Mapping[str, Counter[str]]:
    """Works on every task that is due, whoever planned it; returns how tasks ended or wait again, by plan key."""
    working, ended = environment.executor(), dict[str, Counter[str]]()

    def on_end(leased: LeasedTask, status: TaskStatus | None) -> None:
        key = plan_key_of(environment.engine, leased.plan_id)
        ended.setdefault(key, Counter())[status or TaskStatus.QUEUED] += 1
        if status is None and (reason := why_task_waits(environment.engine, leased.task_id)):
            listener.on_trouble(f"{key}: {reason}")

    def progress() -> str:
        return f"tasks ended: {sum(count.total() for count in ended.values())}"

    working.clock, working.on_end = environment.clock, on_end
    working.on_look = teller(listener, environment.trouble, progress)
    working.drain_everything()
    return ended


def _begin(
    environment: IngestEnvironment,
    provenance_code: str,
    endpoint_name: str,
    operation: Operation,
    context: TriggerContext,
) -> tuple[CompiledSpec, int]:
    """Records who asked and compiles the spec; returns the spec and the id of the schedule instance.

    If the spec does not compile, the reasons are stored with the schedule instance, and SpecError is raised. For an
    endpoint that is blocked EndpointBlocked is raised, because its tasks would only wait.
    """
    schedule_id = record_trigger(
        environment.engine, context, provenance_code, endpoint_name, operation, environment.clock()
    )
    try:
        compiled = environment.compile(provenance_code, endpoint_name, operation)
    except SpecError as error:
        record_compile_failure(environment.engine, schedule_id, error.problems)
        raise
    if reason := why_not_asked(environment.engine, provenance_code, endpoint_name):
        raise EndpointBlocked(reason)
    return compiled, schedule_id


def _too_early(
    operation: Operation, windows: Sequence[Window], stable: datetime, others: Sequence[PartitionResult]
) -> str:
    named = ", ".join(str(window) for window in windows[:3])
    which = f"window {named} is" if len(windows) == 1 else f"windows {named}{' …' if len(windows) > 3 else ''} are"
    incomplete = [str(result.window) for result in others if not result.is_complete]
    also = f"; also incomplete: {', '.join(incomplete[:5])}" if incomplete else ""
    expected = f"expected an end before {stable:%F %T} UTC, which is now minus the safety lag"
    return f"the {operation.lower()} {which} not over: {expected}{also}"


def _drain(
    environment: IngestEnvironment,
    names: Mapping[int, str],
    tell: Callable[[int], None],
    listener: Listener,
    executor: Executor | None,
) -> None:
    """Works on plans until nothing of them can go on.

    `names` has the window or bucket of each plan, for messages. `tell` is called once for each plan that is complete.
    """
    working = executor or environment.executor()
    working.clock = environment.clock
    told: set[int] = set()

    def on_end(leased: LeasedTask, status: TaskStatus | None) -> None:
        if leased.plan_id not in names:
            return
        if status is None and (reason := why_task_waits(environment.engine, leased.task_id)):
            listener.on_trouble(f"{names[leased.plan_id]}: {reason}")
        if leased.plan_id not in told and _is_over(environment.engine, leased.plan_id):
            told.add(leased.plan_id)
            tell(leased.plan_id)

    working.on_end = on_end
    working.on_look = teller(
        listener, environment.trouble, lambda: str(plans_progress(environment.engine, list(names)))
    )
    working.drain_plans(list(names))


def teller(listener: Listener, trouble: RecentTrouble, progress: Callable[[], str] | None = None) -> Callable[[], None]:
    """What an executor calls whenever it looks at its threads: now and then the listener hears how it goes.

    A request that gets no answer is repeated for minutes before its page counts as failed: that is told meanwhile.
    """
    next_progress, next_trouble = time.monotonic() + PROGRESS_S, 0.0

    def tell() -> None:
        nonlocal next_progress, next_trouble
        now = time.monotonic()
        if now >= next_trouble and (text := trouble.take()):
            next_trouble = now + PROGRESS_S
            listener.on_trouble(text)
        if progress is not None and now >= next_progress:
            next_progress = now + PROGRESS_S
            listener.on_progress(progress())

    return tell


def _is_over(engine: Engine, plan_id: int) -> bool:
    query = select(ing_plan.c.status_code).where(ing_plan.c.id == plan_id)
    return bool(read(engine, lambda connection: connection.scalar(query)) == PlanStatus.COMPLETED)
