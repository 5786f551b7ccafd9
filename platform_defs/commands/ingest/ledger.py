"""`platform ingest status|windows|cancel|replay|unblock`: what is open or blocked, and how it is freed."""

import json
from contextlib import suppress

import click
from sqlalchemy import Engine

from platform_defs.commands.tables import DatabaseId, json_option, print_rows, print_table
from platform_defs.connections import open_database
from platform_defs.ingest.codes import Operation
from platform_defs.ingest.errors import PlanError, SpecError, UnknownEndpoint
from platform_defs.ingest.execution.executor import utc_now
from platform_defs.ingest.ledger.open_partitions import count_cancelled, count_given_up, open_partitions
from platform_defs.ingest.ledger.queue import GIVEN_UP, count_tasks
from platform_defs.ingest.ledger.windows import OpenPartition, WindowState
from platform_defs.ingest.planning.cancelling import PlanChoice, cancel_plans, count_stopping
from platform_defs.ingest.planning.wanted_windows import parse_instant
from platform_defs.ingest.registry.show import list_sources
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.ingest.tasks.blocks import list_blocks, paused_sources, unblock_endpoint
from platform_defs.ingest.tasks.health import read_limits

OPERATIONS = click.Choice([operation.lower() for operation in Operation])
OPERATION_HELP = "Harvest and backfill have windows of time, update has buckets of ids."


def refuse_unknown(engine: Engine, code: str, endpoint: str) -> None:
    """Raises UnknownEndpoint for a name that is misspelt; one that does not compile is known."""
    with suppress(SpecError):
        compile_spec(engine, code, endpoint, Operation.HARVEST, now=utc_now())


def refuse_options_of_others(operation: Operation, time: str | None, bucket: int | None) -> None:
    """An option that is silently left out would let a run look as if it had done what was asked."""
    if operation is Operation.UPDATE and time is not None:
        raise click.UsageError("an update has buckets and no windows: use --bucket instead of --from and --to")
    if operation is not Operation.UPDATE and bucket is not None:
        raise click.UsageError(f"a {operation.lower()} has windows and no buckets: use --from and --to")


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(as_json: bool) -> None:
    """Tasks that wait, run or were given up, and what is blocked."""
    with open_database() as engine:
        tasks, blocks = {**count_tasks(engine), **count_given_up(engine, utc_now())}, list_blocks(engine)
        paused = [code for code in paused_sources(engine) if any(key[0] == code for key in tasks)]
        cancelled, stopping = count_cancelled(engine, utc_now()), count_stopping(engine)
        limits = list(read_limits(engine, utc_now()).values())
        known = {(each["code"], name) for each in list_sources(engine, utc_now()) for name in each["endpoints"]}
    # nobody can begin these anew
    cancelled = {key: count for key, count in cancelled.items() if key[:2] in known}
    gone = sorted({key[:3] for key in tasks if key[:2] not in known and key[0] not in paused})
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
        ended = [dict(zip(("source", "endpoint", "operation"), key, strict=True)) for key in gone]
        click.echo(json.dumps(found | {"lowered": lowered, "gone": ended}))
        return
    if tasks:
        lines = [(f"{s}/{e}", o.lower(), state.lower(), count) for (s, e, o, state), count in sorted(tasks.items())]
        print_table(("endpoint", "operation", "state", "tasks"), lines)
    for source, name, operation in sorted({key[:3] for key in tasks if key[3] in GIVEN_UP}):
        of = f"{source} {name}" + ("" if operation == Operation.HARVEST else f" --operation {operation.lower()}")
        what = "buckets" if operation == Operation.UPDATE else "windows"
        click.echo(f"{what} of failed and partial tasks are not complete: `platform ingest windows {of}` says why")
    for source, name, operation in gone:
        of = f"{source} {name} --operation {operation.lower()}"
        click.echo(f"{source}/{name} is gone from the Registry: `platform ingest cancel {of} --all` takes this back")
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
        click.echo(f"{stopping} cancelled {'task ends' if stopping == 1 else 'tasks end'} within seconds")
    if not tasks and not blocks and not cancelled:
        click.echo("no task waits or was given up, and no endpoint is blocked")


@click.command("windows")
@click.argument("code")
@click.argument("endpoint")
@click.option(
    "--operation", type=OPERATIONS, default="harvest", show_default=True, help="Whose windows or buckets are listed."
)
@json_option
def windows(code: str, endpoint: str, operation: str, as_json: bool) -> None:
    """Windows (update: buckets) that are begun and not complete. Exit code 1 if there are any."""
    is_known = False
    with open_database() as engine:
        found = _open_partitions(engine, code, endpoint, Operation(operation.upper()))
        with suppress(UnknownEndpoint):
            refuse_unknown(engine, code, endpoint)
            is_known = True
    print_rows(found, as_json=as_json, nothing=f"no {'bucket' if operation == 'update' else 'window'} is open")
    if not found:
        return
    if is_known and not as_json:
        which = "--operation update --bucket N" if operation == "update" else f"--operation {operation} --from T --to T"
        click.echo(f"`platform ingest run {code} {endpoint} {which}` tries them again; so does Materialize", err=True)
    raise click.exceptions.Exit(1)


def _open_partitions(engine: Engine, code: str, endpoint: str, operation: Operation) -> list[dict[str, str]]:
    """Also of an endpoint that is gone from the Registry, if something of it is open."""
    found = open_partitions(engine, code, endpoint, operation, utc_now())
    if not found:
        refuse_unknown(engine, code, endpoint)
    return [_how_it_stands(one) for one in found]


def _how_it_stands(one: OpenPartition) -> dict[str, str]:
    which = {"window": str(one.window)} if isinstance(one, WindowState) else {"bucket": one.name.split()[-1]}
    return {**which, "status": one.status.lower(), "plan": one.plan_key, "reason": one.reason or ""}


@click.command("cancel")
@click.argument("code")
@click.argument("endpoint")
@click.option("--operation", type=OPERATIONS, default="harvest", show_default=True, help=OPERATION_HELP)
@click.option("--from", "start", metavar="TIME", help="Windows that end after this time in UTC, such as 2026-11-01.")
@click.option("--to", "end", metavar="TIME", help="Windows that begin before this time in UTC.")
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

    What waits is not fetched, a page that is awaited is given up. Running or materialising a window again
    begins it anew; until then it stays cancelled.
    """
    refuse_options_of_others(Operation(operation.upper()), start or end, bucket)
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
            refuse_unknown(engine, code, endpoint)
            what = "bucket" if operation.upper() == Operation.UPDATE else "window"
            raise PlanError(f"{code}/{endpoint} has no open {operation} {what} like that: nothing was cancelled")
    lines = [
        {"partition": one.name, "taken_back": one.taken_back, "stopping": one.stopping, "plan": one.plan_key}
        for one in found
    ]
    print_rows(lines, as_json=as_json, nothing="")
    if not as_json and any(one.stopping for one in found):
        click.echo("tasks that are stopping end within seconds: `platform ingest status` says when they have")


@click.command("replay")
@click.argument("run_id", type=DatabaseId())
@click.argument("batch_no", type=DatabaseId())
def replay(run_id: int, batch_no: int) -> None:
    """Rebuild the request of a batch from its plan's snapshot. Sends and writes nothing.

    The batch after a failed run's last one is the page at which it failed: "same" is then null, because nothing was
    kept of its request. Exit code 1 if the request is not the one that was sent.
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
        "exprHash": context.expr_hash,
        "specFingerprint": context.spec_fingerprint,
        "sliceSignature": context.slice_signature,
    }
    if context.batch is None:
        fields["error"] = context.error
    else:
        fields["stats"] = context.batch.stats
    if found.is_same is False:
        fields["stored"] = found.stored
    click.echo(json.dumps(fields, indent=2, ensure_ascii=False))
    if found.is_same is False:
        raise click.exceptions.Exit(1)


@click.command("unblock")
@click.argument("code")
@click.argument("endpoint")
def unblock(code: str, endpoint: str) -> None:
    """Let an endpoint be asked again after a fatal error. Such an error is a key that the source refused."""
    with open_database() as engine:
        was_blocked = unblock_endpoint(engine, code, endpoint)
        if not was_blocked:
            refuse_unknown(engine, code, endpoint)
    if was_blocked:
        click.echo(
            f"{code}/{endpoint} is asked again from now on; harvest windows that failed, and records that were asked"
            " for, are tried again after 15 minutes, backfill windows when somebody materialises them"
        )
    else:
        click.echo(f"{code}/{endpoint} is not blocked")


COMMANDS: tuple[click.Command, ...] = (status, windows, cancel, replay, unblock)
