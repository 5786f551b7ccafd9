"""`platform chains`: load and list chains, start and stop runs, retry and complete their nodes."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from sqlalchemy import Connection, Engine

from platform_defs.chains import definitions as chains
from platform_defs.chains.audit import newest_entries
from platform_defs.chains.dag import parse_snapshot
from platform_defs.chains.definition_file import load_file
from platform_defs.chains.definitions import Chain
from platform_defs.chains.json_values import read_json_text
from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.runs import operations, queries, starting
from platform_defs.chains.states import RunStatus
from platform_defs.commands.tables import json_option, limit_option, print_object, print_rows, result_option
from platform_defs.commands.waking import wake_runner
from platform_defs.connections import open_database
from platform_defs.settings import Settings
from platform_defs.store.engine import read
from platform_defs.work.wake import wake
from platform_defs.yaml_lines import YamlFileError

# Who did it, in the audit and on nodes: the commands have no key.
OPERATOR = "operator"

_chain = click.argument("chain", metavar="ID_OR_NAME")
# What people see of each, by its header. Long texts are last, so that the other columns stay together.
_CHAIN_COLUMNS = {
    **{"name": "name", "enabled": "enabled", "version": "version", "changed": "updated_at", "id": "chain_id"},
    "description": "description",
}
_RUN_COLUMNS = {
    **{"run": "run_id", "chain": "job_name", "status": "status", "started by": "actor", "how": "trigger_text"},
    **{"created": "created_at", "ended": "ended_at", "error": "error"},
}
_NODE_COLUMNS = {
    **{"node": "node_id", "status": "status", "attempt": "attempt", "started": "started_at", "ended": "ended_at"},
    "last error": "last_error",
}
_AUDIT_COLUMNS = {
    **{"when": "created_at", "who": "actor", "did": "action", "chain, job or run": "object_id", "node": "node_id"},
    "reason": "reason",
}
_run = click.argument("run_id", metavar="RUN_ID")
_node = click.argument("node_id", metavar="NODE_ID")
_reason = click.option("--reason", help="Kept with what was done.")
_artifact = click.option("--artifact", metavar="JSON", help="The node's artifact, as JSON.")


@click.group("chains")
def command() -> None:
    """Load, list and start chains; stop and repair their runs."""


@command.command("load")
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def load(file: Path, as_json: bool) -> None:
    """Load the chains and jobs of FILE (YAML or JSON; docs/chains.md). A file with a problem is refused as a whole."""
    content = file.read_bytes()
    try:
        with open_database() as engine, _open_types(engine) as types:
            summary = load_file(engine, types, content, str(file), actor=OPERATOR)
    except YamlFileError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        raise click.exceptions.Exit(1) from None
    if as_json:
        print_rows(map(asdict, summary.saved), as_json=True, nothing="")
        return
    for one in summary.saved:
        click.echo(f"{one.change} {one.kind} {one.name}")


@command.command("list")
@click.option("--keyword", help="Part of the name or of the description.")
@click.option("--enabled/--disabled", "enabled", default=None, help="Only those.")
@json_option
def list_(keyword: str | None, enabled: bool | None, as_json: bool) -> None:
    """List chains, the newest first."""
    with open_database() as engine:
        number, found = 1, list[dict[str, Any]]()
        while True:
            page = chains.page_of_chains(engine, page=number, size=200, keyword=keyword, enabled=enabled)
            found += [dict(row._mapping) for row in page.rows]
            number += 1
            if len(found) >= page.total or not page.rows:
                break
    if not as_json:
        found = [row | {"enabled": bool(row["enabled"])} for row in found]
    _print(found, _CHAIN_COLUMNS, as_json, nothing="no chains; `platform chains load FILE` loads some")


@command.command("show")
@_chain
def show(chain: str) -> None:
    """Show a chain with its DAG, as JSON."""
    with open_database() as engine:
        found = _find(engine, chain)
    click.echo(json.dumps(asdict(found), ensure_ascii=False, indent=2, default=str))


@command.command("enable")
@_chain
def enable(chain: str) -> None:
    """Let a chain be started, and its triggers start it."""
    _set_enabled(chain, True)


@command.command("disable")
@_chain
def disable(chain: str) -> None:
    """Let a chain no longer be started. Runs that have begun go on."""
    _set_enabled(chain, False)


@command.command("start")
@_chain
@click.option("--params", metavar="JSON", help="An object; `${params.x}` in the cfg of nodes.")
def start(chain: str, params: str | None) -> None:
    """Start a run; prints its id."""
    given = None if params is None else _parse_json("--params", params)
    with open_database() as engine:
        chain_id = _find(engine, chain).chain_id
        started = starting.start_chain(engine, chain_id, params=given, actor=OPERATOR, trigger="command")
        wake_runner(engine)
    click.echo(started.run_id)


@command.command("runs")
@click.option("--chain", help="Only runs of this chain: its id or name.")
@click.option("--status", type=click.Choice([status.lower() for status in RunStatus]), help="Only those.")
@limit_option(queries.PAGE, queries.MAX_PAGE)
@json_option
def runs(chain: str | None, status: str | None, limit: int, as_json: bool) -> None:
    """List runs, the newest first, with who started them and how. --json has everything."""
    with open_database() as engine:
        chain_id = None if chain is None else _find(engine, chain).chain_id
        found = queries.list_runs(engine, chain_id=chain_id, status=status and status.upper(), limit=limit)
        of_nodes = queries.errors_of_nodes(engine, [row.run_id for row in found])
    rows = [{**row._mapping, "node_errors": of_nodes[row.run_id]} for row in found]
    if not as_json:
        rows = [{**row, "error": row["error"] or _errors(row["node_errors"])} for row in rows]
    _print(rows, _RUN_COLUMNS, as_json, nothing="no run yet")


@command.command("nodes")
@_run
@json_option
def nodes(run_id: str, as_json: bool) -> None:
    """List the nodes of a run, each below those that it depends on. --json also has artifacts and what people did."""
    with open_database() as engine:
        of_node = {row.node_id: row for row in queries.list_nodes(engine, run_id)}
        order = parse_snapshot(queries.get_run(engine, run_id).dag_json).in_order
    _print([dict(of_node[node.id]._mapping) for node in order], _NODE_COLUMNS, as_json, nothing="the run has no node")


@command.command("stop")
@_run
@_reason
@result_option
def stop(run_id: str, reason: str | None, as_json: bool) -> None:
    """Stop a run, and the runs that its nodes started."""
    with open_database() as engine:
        status = operations.stop_run(engine, run_id, actor=OPERATOR, reason=reason)
    wake(Settings.load().home)
    if as_json:
        print_object({"run_id": run_id, "status": status})
        return
    click.echo(f"run {run_id} is {status}")


@command.command("retry")
@_run
@_node
@_reason
@click.option("--clear-checkpoint", is_flag=True, help="The new attempt begins without the node's checkpoint.")
@result_option
def retry(run_id: str, node_id: str, reason: str | None, clear_checkpoint: bool, as_json: bool) -> None:
    """Retry a FAILED or STOPPED node, and go on below it."""
    with open_database() as engine:
        state = operations.retry_node(
            engine, run_id, node_id, actor=OPERATOR, reason=reason, clear_checkpoint=clear_checkpoint
        )
        wake_runner(engine)
    if as_json:
        print_object(asdict(state))
        return
    click.echo(f"node {node_id} is {state.status}, attempt {state.attempt}")


@command.command("complete")
@_run
@_node
@_reason
@_artifact
@result_option
def complete(run_id: str, node_id: str, reason: str | None, artifact: str | None, as_json: bool) -> None:
    """Complete a node by hand, and go on below it."""
    value = None if artifact is None else _parse_json("--artifact", artifact)
    with open_database() as engine:
        state = operations.complete_node(engine, run_id, node_id, actor=OPERATOR, reason=reason, artifact=value)
        if state.changed:
            wake_runner(engine)
    if as_json:
        print_object(asdict(state))
        return
    click.echo(f"node {node_id} is {state.status}" + ("" if state.changed else " already"))


@command.command("audit")
@click.argument("object_id", metavar="[ID]", required=False)
@limit_option(50, 1000)
@json_option
def audit(object_id: str | None, limit: int, as_json: bool) -> None:
    """List who did what, the newest first. ID names one chain, job or run; --json has before and after."""
    with open_database() as engine:
        found = newest_entries(engine, object_id=object_id, limit=limit)
    nothing = "nobody has done anything yet" if object_id is None else f"nothing is recorded of {object_id!r}"
    _print([dict(row._mapping) for row in found], _AUDIT_COLUMNS, as_json, nothing=nothing)


def _find(engine: Engine, chain: str) -> Chain:
    def look(connection: Connection) -> Chain:
        return chains.find_by_id_or_name(connection, chain)

    return read(engine, look)


def _set_enabled(chain: str, enabled: bool) -> None:
    with open_database() as engine:
        found = chains.set_chain_enabled(engine, _find(engine, chain).chain_id, enabled, actor=OPERATOR)
    click.echo(f"{found.name} is {'enabled' if enabled else 'disabled'}")


@contextmanager
def _open_types(engine: Engine) -> Iterator[NodeTypes]:
    # imported here: only loading checks chains, and the HTTP client is slow to import
    from platform_defs.chain_nodes.catalogue import all_node_types

    types = all_node_types(engine, Settings.load())
    try:
        yield types
    finally:
        types.close()


def _parse_json(option: str, text: str) -> Any:
    try:
        return read_json_text(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None


def _errors(of_nodes: Mapping[str, str]) -> str | None:
    """The errors of a run's nodes in one cell: the first in full, and how many more there are."""
    if not of_nodes:
        return None
    node_id, error = next(iter(of_nodes.items()))
    others = len(of_nodes) - 1
    more = f" (and {others} more node{'s' * (others > 1)}; `platform chains nodes` lists them)" if others else ""
    return f"{node_id}: {error.splitlines()[0]}{more}"


def _print(rows: list[dict[str, Any]], columns: Mapping[str, str], as_json: bool, *, nothing: str) -> None:
    """`columns` are those that people see, by their header; programs get all of them."""
    if not as_json:
        rows = [{header: row[name] for header, name in columns.items()} for row in rows]
    print_rows(rows, as_json=as_json, nothing=nothing)
