"""`platform ingest`: fetch windows, work as an executor, ask for records; ledger.py has the other commands."""

import json
import signal as signals
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

import click
from sqlalchemy import Engine

from platform_defs.commands.ingest import ledger
from platform_defs.commands.ingest.ledger import OPERATION_HELP, OPERATIONS, refuse_options_of_others
from platform_defs.commands.tables import print_object, result_option
from platform_defs.connections import open_database
from platform_defs.ingest.codes import Operation, Trigger
from platform_defs.ingest.errors import PlanError, SpecError
from platform_defs.ingest.execution.executor import Executor, utc_now
from platform_defs.ingest.fetching.reading import MAX_PROVIDER_ID
from platform_defs.ingest.materialisation import (
    IngestEnvironment,
    Listener,
    PartitionResult,
    materialise_bucket,
    materialise_windows,
    teller,
)
from platform_defs.ingest.planning.schedule import TriggerContext
from platform_defs.ingest.planning.signals import ask_again
from platform_defs.ingest.planning.wanted_windows import parse_instant, wanted_windows
from platform_defs.ingest.planning.windows import Window
from platform_defs.ingest.spec.model import Spec
from platform_defs.ingest.tasks.blocks import why_not_asked

# Standard output has the results alone, for programs.
_ON_STDERR = Listener(
    on_trouble=lambda text: click.echo(text, err=True), on_progress=lambda text: click.echo(text, err=True)
)
# Where the source may not be asked for hours: the command does not wait for that.
_GOES_ON = "what waits is fetched when it is due, by the platform or the next `platform ingest execute`"


@click.group("ingest")
def command() -> None:
    """Harvest, backfill and update sources that the Registry describes."""


for _command in ledger.COMMANDS:
    command.add_command(_command)


@contextmanager
def _open_environment(threads: int) -> Iterator[IngestEnvironment]:
    # imported here: `platform ingest --help` needs no HTTP client
    from platform_defs.ingest.opening import open_environment

    with open_database() as engine, open_environment(engine, threads) as environment:
        yield environment


@command.command("run")
@click.argument("code")
@click.argument("endpoint")
@click.option("--operation", type=OPERATIONS, default="harvest", show_default=True, help=OPERATION_HELP)
@click.option(
    *("--from", "start"),
    metavar="TIME",
    help="Begin with the window that contains this time in UTC, such as 2026-11-01 or 2026-11-01T06:00.",
)
@click.option("--to", "end", metavar="TIME", help="End with the window that contains the moment before this time.")
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
    refuse_options_of_others(Operation(operation.upper()), start or end, bucket)
    context = TriggerContext(Trigger.MANUAL, "command", params={"from": start, "to": end, "bucket": bucket})
    with _open_environment(threads) as environment:
        executor = environment.executor()
        _stop_on_signals(executor.cancel)
        try:
            spec = environment.compile(code, endpoint, Operation(operation.upper())).spec
            results = _fetch(environment, executor, spec, context, start, end, bucket, as_json)
        except SpecError as error:
            for problem in error.problems:
                click.echo(problem, err=True)
            raise click.exceptions.Exit(1) from None
        waits_for = why_not_asked(environment.engine, code, endpoint)
    if executor.cancel.is_set():
        click.echo(_what_goes_on(results, f"{code} {endpoint} --operation {operation}"), err=True)
        raise click.exceptions.Exit(1)
    if not results:
        click.echo("nothing is due", err=True)
    if not all(result.is_complete for result in results):
        if waits_for is not None:
            click.echo(waits_for, err=True)
        elif any(result.report.is_under_way for result in results):
            click.echo(_GOES_ON, err=True)
        raise click.exceptions.Exit(1)


@command.command("execute")
@click.option("--threads", type=click.IntRange(1, 32), default=4, show_default=True, help="Slices at a time.")
@click.option("--once", is_flag=True, help="Stop when no task is due.")
@click.option("--json", "as_json", is_flag=True, help="With --once: the result as one JSON object.")
def execute(threads: int, once: bool, as_json: bool) -> None:
    """Work on tasks that are due. One executor among others, until SIGTERM or Ctrl-C."""
    if as_json and not once:
        raise click.UsageError("--json needs --once: without it there is no result, because the command goes on")
    with _open_environment(threads) as environment:
        executor = environment.executor()
        executor.on_look = teller(_ON_STDERR, environment.trouble)
        _stop_on_signals(executor.cancel)
        if not once:
            executor.serve()
            return
        ended = executor.drain_everything()
    if as_json:
        print_object({"ended": ended})
        return
    click.echo(f"{ended} tasks ended")


@command.command("signal")
@click.argument("code")
@click.argument("endpoint")
@click.argument("ids", nargs=-1, required=True)
@click.option("--reason", help="Why, for those who look at it later.")
@result_option
def signal(code: str, endpoint: str, ids: tuple[str, ...], reason: str | None, as_json: bool) -> None:
    """Ask for records to be fetched again, by their IDS."""
    if any(not 0 < len(each) <= MAX_PROVIDER_ID for each in ids):
        raise click.BadParameter(f"expected texts of 1 to {MAX_PROVIDER_ID} characters", param_hint="IDS")
    with open_database() as engine:
        count = ask_again(engine, code, endpoint, ids, reason=reason, requested_by="command", now=utc_now())
    if as_json:
        print_object({"accepted": count})
        return
    click.echo(f"{count} {'record' if count == 1 else 'records'} will be fetched again by the next update")


def _fetch(
    environment: IngestEnvironment,
    executor: Executor,
    spec: Spec,
    context: TriggerContext,
    start: str | None,
    end: str | None,
    bucket: int | None,
    as_json: bool,
) -> list[PartitionResult]:
    names = (spec.provenance_code, spec.endpoint_name)
    if spec.operation is Operation.UPDATE:
        if bucket is not None and bucket >= spec.update_buckets:
            raise PlanError(f"--bucket: expected 0 to {spec.update_buckets - 1}, got {bucket}")
        results = []
        for number in range(spec.update_buckets) if bucket is None else [bucket]:
            if executor.cancel.is_set():
                break
            results.append(
                materialise_bucket(environment, *names, number, context, listener=_ON_STDERR, executor=executor)
            )
            _show(results[-1], as_json, len(results), spec.update_buckets if bucket is None else 1)
        return results
    wanted = _wanted_windows(environment.engine, spec, start, end, environment.clock())
    shown: list[PartitionResult] = []

    def show(result: PartitionResult) -> None:
        shown.append(result)
        _show(result, as_json, len(shown), len(wanted))

    listener = replace(_ON_STDERR, on_result=show)
    return materialise_windows(
        environment, *names, spec.operation, wanted, context, listener=listener, executor=executor
    )


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
    pages = "1 page" if report.pages == 1 else f"{report.pages} pages"
    click.echo(f"{line}  {totals.get('inserted', 0)} new, {totals.get('updated', 0)} changed, {pages}")
    for reason in report.unfinished[:5]:
        click.echo(f"  {reason}", err=True)


def _what_goes_on(results: Sequence[PartitionResult], names: str) -> str:
    """For somebody who stopped the command: what it had planned is in a queue, and others work on that, too."""
    left = [result for result in results if not result.is_complete]
    if not left:
        return "stopped: nothing of it is left in the queue"
    windows = sorted(result.window for result in left if result.window is not None)
    if windows:
        which = f"--from {windows[0].start:%FT%H:%M} --to {windows[-1].end:%FT%H:%M}"
    else:
        which = f"--bucket {left[-1].bucket}"
    count = f"{len(left)} {'window' if windows else 'bucket'}{'' if len(left) == 1 else 's'}"
    goes_on = "the platform, or the next `platform ingest execute`, goes on with what is left"
    return f"stopped: {count} not complete; {goes_on}, and `platform ingest cancel {names} {which}` takes it back"


def _stop_on_signals(cancel: threading.Event) -> None:
    for number in (signals.SIGTERM, signals.SIGINT):
        signals.signal(number, lambda *_: cancel.set())
