"""`platform ingest`: fetch windows, work as an executor, ask for records, see what is open or blocked."""

import json
import signal as signals
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import click
from sqlalchemy import Engine

from platform_defs.commands.tables import json_option, print_rows, print_table
from platform_defs.connections import open_database
from platform_defs.ingest.codes import Operation, Trigger
from platform_defs.ingest.errors import PlanError, SpecError
from platform_defs.ingest.execution.blocks import list_blocks, paused_sources, unblock_endpoint, why_not_asked
from platform_defs.ingest.execution.executor import Executor, utc_now
from platform_defs.ingest.execution.health import read_limits
from platform_defs.ingest.execution.reading import MAX_PROVIDER_ID
from platform_defs.ingest.ledger.queue import GIVEN_UP, OPEN_STATES, count_tasks
from platform_defs.ingest.ledger.windows import open_windows
from platform_defs.ingest.materialisation import (
    IngestEnvironment,
    PartitionResult,
    materialise_bucket,
    materialise_windows,
)
from platform_defs.ingest.planning.cancelling import PlanChoice, cancel_plans, count_cancelled, count_stopping
from platform_defs.ingest.planning.schedule import TriggerContext
from platform_defs.ingest.planning.signals import ask_again
from platform_defs.ingest.planning.wanted_windows import parse_instant, wanted_windows
from platform_defs.ingest.planning.windows import Window
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.ingest.spec.model import Spec

OPERATIONS = click.Choice([operation.lower() for operation in Operation])


@click.group("ingest")
def command() -> None:
    """Harvest, backfill and update sources that the Registry describes."""


@contextmanager
def _open_environment(threads: int) -> Iterator[IngestEnvironment]:
    # imported here: `platform ingest --help` needs no HTTP client
    from platform_defs.ingest.opening import open_environment

    with open_database() as engine, open_environment(engine, threads) as environment:
        yield environment


@command.command("run")
@click.argument("code")
@click.argument("endpoint")
@click.option("--operation", type=OPERATIONS, default="harvest", show_default=True)
@click.option("--from", "start", metavar="T", help="Begin with the window that contains this time (UTC).")
@click.option("--to", "end", metavar="T", help="End with the window that contains the moment before this time (UTC).")
@click.option("--bucket", type=click.IntRange(0), help="With update: this bucket alone. Default: all of them.")
@click.option("--threads", type=click.IntRange(1, 32), default=4, show_default=True, help="Slices at a time.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per window or bucket.")
def run(
    code: str,
    endpoint: str,
    operation: str,
    start: str | None,
    end: str | None,
    bucket: int | None,
    threads: int,
    as_json: bool,
) -> None:
    """Plan and fetch windows of CODE's ENDPOINT. Exit code 0 only if all are complete.

    Without --from a harvest takes what is due since its watermark.
    """
    _refuse_options_of_others(Operation(operation.upper()), start or end, bucket)
    context = TriggerContext(Trigger.MANUAL, "command", params={"from": start, "to": end, "bucket": bucket})
    with _open_environment(threads) as environment:
        try:
            spec = environment.compile(code, endpoint, Operation(operation.upper())).spec
            results = _fetch(environment, spec, context, start, end, bucket, as_json)
        except SpecError as error:
            for problem in error.problems:
                click.echo(problem, err=True)
            raise click.exceptions.Exit(1) from None
        waits_for = why_not_asked(environment.engine, code, endpoint)
    if not results:
        click.echo("nothing is due", err=True)
    if not all(result.is_complete for result in results):
        if waits_for is not None:
            click.echo(waits_for, err=True)
        raise click.exceptions.Exit(1)


@command.command("execute")
@click.option("--threads", type=click.IntRange(1, 32), default=4, show_default=True, help="Slices at a time.")
@click.option("--once", is_flag=True, help="Stop when no task is due.")
def execute(threads: int, once: bool) -> None:
    """Work on tasks that are due. One executor among others, until SIGTERM or Ctrl-C."""
    with _open_environment(threads) as environment:
        executor = Executor(environment.engine, environment.open_source, threads=threads)
        for number in (signals.SIGTERM, signals.SIGINT):
            signals.signal(number, lambda *_: executor.cancel.set())
        if once:
            click.echo(f"{executor.drain_everything()} tasks ended")
        else:
            executor.serve()


@command.command("signal")
@click.argument("code")
@click.argument("endpoint")
@click.argument("ids", nargs=-1, required=True)
@click.option("--reason", help="Why, for those who look at it later.")
def signal(code: str, endpoint: str, ids: tuple[str, ...], reason: str | None) -> None:
    """Ask for records to be fetched again, by their IDS."""
    if any(not 0 < len(each) <= MAX_PROVIDER_ID for each in ids):
        raise click.BadParameter(f"expected texts of 1 to {MAX_PROVIDER_ID} characters", param_hint="IDS")
    with open_database() as engine:
        count = ask_again(engine, code, endpoint, ids, reason=reason, requested_by="command", now=utc_now())
    click.echo(f"{count} {'record' if count == 1 else 'records'} will be fetched again by the next update")


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(as_json: bool) -> None:
    """Tasks that wait, run or were given up, and what is blocked."""
    with open_database() as engine:
        tasks, blocks = count_tasks(engine, states=(*OPEN_STATES, *GIVEN_UP)), list_blocks(engine)
        paused = [code for code in paused_sources(engine) if any(key[0] == code for key in tasks)]
        cancelled, stopping = count_cancelled(engine), count_stopping(engine)
        limits = list(read_limits(engine, utc_now()).values())
    if as_json:
        rows = [
            dict(zip(("source", "endpoint", "operation", "status", "tasks"), (*key, n), strict=True))
            for key, n in tasks.items()
        ]
        stopped = [{"source": b.provenance_code, "endpoint": b.endpoint_name, "reason": b.reason} for b in blocks]
        taken_back = [
            {"source": s, "endpoint": e, "operation": o, "partitions": count} for (s, e, o), count in cancelled.items()
        ]
        lowered = [
            {
                **dict(zip(("source", "endpoint", "operation"), limit.partition, strict=True)),
                "slices": limit.max_concurrent,
                "until": limit.holds_until.isoformat(),
                "reason": limit.reason,
            }
            for limit in limits
        ]
        found = {"tasks": rows, "blocked": stopped, "paused": paused, "cancelled": taken_back, "stopping": stopping}
        click.echo(json.dumps(found | {"lowered": lowered}))
        return
    if tasks:
        lines = [(f"{s}/{e}", o.lower(), state.lower(), count) for (s, e, o, state), count in sorted(tasks.items())]
        print_table(("endpoint", "operation", "state", "tasks"), lines)
    if any(state in GIVEN_UP for *_, state in tasks):
        click.echo("windows of failed and partial tasks are not complete: `platform ingest windows` says why")
    for block in blocks:
        click.echo(str(block))
    for code in paused:
        click.echo(f"{code} is not active: its tasks wait until it is")
    for limit in limits:
        click.echo(str(limit))
    for (source, name, operation), count in sorted(cancelled.items()):
        what = "buckets" if operation == Operation.UPDATE else "windows"
        click.echo(f"{source}/{name}: cancelled {operation.lower()} {what}: {count}; running one again begins it anew")
    if stopping:
        click.echo(f"{stopping} cancelled {'task ends' if stopping == 1 else 'tasks end'} after the next page")
    if not tasks and not blocks and not cancelled:
        click.echo("no task waits or was given up, and no endpoint is blocked")


@command.command("windows")
@click.argument("code")
@click.argument("endpoint")
@click.option("--operation", type=click.Choice(["harvest", "backfill"]), default="harvest", show_default=True)
@json_option
def windows(code: str, endpoint: str, operation: str, as_json: bool) -> None:
    """Windows that were begun and are not complete. Exit code 1 if there are any."""
    with open_database() as engine:
        found = open_windows(
            engine, code, endpoint, Operation(operation.upper()), begins=_begin(engine, code, endpoint)
        )
    lines = [
        {"window": str(one.window), "status": one.status.lower(), "plan": one.plan_key, "reason": one.reason or ""}
        for one in found
    ]
    print_rows(lines, as_json=as_json, nothing="no window is open")
    if found:
        raise click.exceptions.Exit(1)


@command.command("cancel")
@click.argument("code")
@click.argument("endpoint")
@click.option("--operation", type=OPERATIONS, default="harvest", show_default=True)
@click.option("--from", "start", metavar="T", help="Windows that end after this time (UTC).")
@click.option("--to", "end", metavar="T", help="Windows that begin before this time (UTC).")
@click.option("--bucket", type=click.IntRange(0), help="With update: this bucket.")
@click.option("--plan", "plan_key", metavar="KEY", help="This plan alone, as `platform ingest windows` names it.")
@click.option("--all", "everything", is_flag=True, help="All open windows or buckets of the operation.")
@click.option("--reason", help="Why, for those who look at it later.")
@json_option
def cancel(
    code: str,
    endpoint: str,
    operation: str,
    start: str | None,
    end: str | None,
    bucket: int | None,
    plan_key: str | None,
    everything: bool,
    reason: str | None,
    as_json: bool,
) -> None:
    """Take back windows or buckets that are not complete. Their records stay.

    What waits is not fetched, what is being fetched ends after its next page. Running or materialising a window again
    begins it anew; until then it stays cancelled.
    """
    _refuse_options_of_others(Operation(operation.upper()), start or end, bucket)
    if not everything and not (start or end or plan_key) and bucket is None:
        raise click.UsageError("say which: --from and --to, --bucket, --plan or --all")
    choice = PlanChoice(
        None if start is None else parse_instant(start, "--from"),
        None if end is None else parse_instant(end, "--to"),
        bucket,
        plan_key,
    )
    with open_database() as engine:
        found = cancel_plans(engine, code, endpoint, Operation(operation.upper()), choice, reason=reason, now=utc_now())
        if not found:
            # a name that is misspelt; the tasks of a source that is not active can be taken back too
            _begin(engine, code, endpoint)
            what = "bucket" if operation.upper() == Operation.UPDATE else "window"
            raise PlanError(f"{code}/{endpoint} has no open {operation} {what} like that: nothing was cancelled")
    lines = [
        {"partition": one.name, "taken_back": one.taken_back, "stopping": one.stopping, "plan": one.plan_key}
        for one in found
    ]
    print_rows(lines, as_json=as_json, nothing="")
    if not as_json and any(one.stopping for one in found):
        click.echo("tasks that are stopping end after their next page: `platform ingest status` says when they have")


@command.command("replay")
@click.argument("run_id", type=int)
@click.argument("batch_no", type=int)
def replay(run_id: int, batch_no: int) -> None:
    """Rebuild the request of a stored batch from its plan's snapshot. Sends and writes nothing.

    Exit code 0 only if the request is the one that was sent.
    """
    from platform_defs.ingest.execution.replay import load_batch
    from platform_defs.ingest.transport.requests import replay_request

    with open_database() as engine:
        found = replay_request(load_batch(engine, run_id, batch_no))
    context = found.context
    fields = {
        "same": found.is_same,
        "request": found.rebuilt,
        "position": context.position.as_json(),
        "exprHash": context.batch.expr_hash,
        "specFingerprint": context.spec_fingerprint,
        "sliceSignature": context.slice_signature,
        "stats": context.batch.stats,
    }
    if not found.is_same:
        fields["stored"] = found.stored
    click.echo(json.dumps(fields, indent=2, ensure_ascii=False))
    if not found.is_same:
        raise click.exceptions.Exit(1)


@command.command("unblock")
@click.argument("code")
@click.argument("endpoint")
def unblock(code: str, endpoint: str) -> None:
    """Let an endpoint be asked again after a fatal error. Such an error is a key that the source refused."""
    with open_database() as engine:
        was_blocked = unblock_endpoint(engine, code, endpoint)
        if not was_blocked:
            _begin(engine, code, endpoint)
    if was_blocked:
        click.echo(
            f"{code}/{endpoint} is asked again from now on; windows that failed are tried again after 15 minutes"
        )
    else:
        click.echo(f"{code}/{endpoint} is not blocked")


def _begin(engine: Engine, code: str, endpoint: str) -> datetime | None:
    """Where the endpoint's windows begin; raises UnknownEndpoint for a name that is misspelt."""
    try:
        return compile_spec(engine, code, endpoint, Operation.HARVEST, now=utc_now()).spec.window.start
    except SpecError:
        return None


def _refuse_options_of_others(operation: Operation, time: str | None, bucket: int | None) -> None:
    """An option that is silently left out would let a run look as if it had done what was asked."""
    if operation is Operation.UPDATE and time is not None:
        raise click.UsageError("an update has buckets and no windows: use --bucket instead of --from and --to")
    if operation is not Operation.UPDATE and bucket is not None:
        raise click.UsageError(f"a {operation.lower()} has windows and no buckets: use --from and --to")


def _fetch(
    environment: IngestEnvironment,
    spec: Spec,
    context: TriggerContext,
    start: str | None,
    end: str | None,
    bucket: int | None,
    as_json: bool,
) -> list[PartitionResult]:
    executor = Executor(environment.engine, environment.open_source, threads=environment.threads)
    _stop_on_signals(executor.cancel)
    names = (spec.provenance_code, spec.endpoint_name)
    if spec.operation is Operation.UPDATE:
        if bucket is not None and bucket >= spec.update_buckets:
            raise PlanError(f"--bucket: expected 0 to {spec.update_buckets - 1}, got {bucket}")
        results = []
        for number in range(spec.update_buckets) if bucket is None else [bucket]:
            results.append(materialise_bucket(environment, *names, number, context, executor=executor))
            _show(results[-1], as_json, len(results), spec.update_buckets if bucket is None else 1)
        return results
    wanted = _wanted_windows(environment.engine, spec, start, end, environment.clock())
    shown: list[PartitionResult] = []

    def show(result: PartitionResult) -> None:
        shown.append(result)
        _show(result, as_json, len(shown), len(wanted))

    return materialise_windows(environment, *names, spec.operation, wanted, context, on_result=show, executor=executor)


def _wanted_windows(engine: Engine, spec: Spec, start: str | None, end: str | None, now: datetime) -> list[Window]:
    from platform_defs.ingest.cursors.operations import read_watermark

    first = None if start is None else parse_instant(start, "--from")
    until = None if end is None else parse_instant(end, "--to")
    return wanted_windows(spec, read_watermark(engine, spec), first, until, now)


def _show(result: PartitionResult, as_json: bool, number: int, total: int) -> None:
    report, totals = result.report, result.report.totals
    name = str(result.window) if result.window is not None else f"bucket {result.bucket}"
    if as_json:
        fields = {"partition": name, "status": report.status, "plan": report.plan_key, "pages": report.pages, **totals}
        click.echo(json.dumps(fields))
        return
    filled = round(20 * number / max(1, total))
    line = f"[{'#' * filled:<20}] {number}/{total}  {name}  {report.status.lower()}"
    click.echo(f"{line}  {totals.get('inserted', 0)} new, {totals.get('updated', 0)} changed, {report.pages} pages")
    for reason in report.unfinished[:5]:
        click.echo(f"  {reason}", err=True)


def _stop_on_signals(cancel: threading.Event) -> None:
    for number in (signals.SIGTERM, signals.SIGINT):
        signals.signal(number, lambda *_: cancel.set())
