"""The node type `sql`: statements on a named data source, in one transaction; the last result is the artifact."""

import base64
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar

from pydantic import Field
from sqlalchemy import text
from sqlalchemy.engine import URL

from platform_defs.chains.nodes.cfg import NodeCfg
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.port import NodeContext, NodeFailed, NodeResult, NodeStopped
from platform_defs.chains.nodes.types.sql_sessions import Session, SqlFailed, transaction
from platform_defs.sources.errors import SourceError
from platform_defs.sources.named import PLATFORM_SOURCE, Sources

MOST_ROWS = 10_000


class SqlCfg(NodeCfg):
    """Executes one or more statements on a named data source, in one transaction.

    `sql` is no template: values come as parameters, so that none of them can change the statement.
    """

    literal_fields: ClassVar[frozenset[str]] = frozenset({"sql"})

    source: str = Field(
        pattern=r"^[A-Za-z][A-Za-z0-9_]*$",
        description="The data source: PLATFORM_SOURCE_<SOURCE>_URL names its database.",
    )
    sql: str | list[str] = Field(min_length=1, description="A statement, or several; `:name` stands for a parameter.")
    parameters: dict[str, str | int | float | bool | None] = Field(
        {}, description="Values of `:name` in the statements."
    )
    max_rows: int = Field(100, ge=0, le=MOST_ROWS, description="Rows of the last result that the artifact has.")


class SqlExecutor:
    name = "sql"
    cfg_model = SqlCfg

    def __init__(self, environment: NodeEnvironment | None) -> None:
        self._environment = environment

    def problems(self, cfg: SqlCfg) -> Iterator[str]:
        if cfg.source.lower() == PLATFORM_SOURCE:
            yield (
                "cfg.source: expected the name of a data source, got that of the platform's own database, which chains"
                " may not use: it holds the keys and the data of all teams"
            )

    def execute(self, context: NodeContext, cfg: SqlCfg) -> NodeResult:
        url = self._url(cfg.source)
        statements = [cfg.sql] if isinstance(cfg.sql, str) else cfg.sql
        artifact: dict[str, Any] = {}
        try:
            with transaction(url, context.stop, context.timeout_s) as session:
                for number, statement in enumerate(statements, 1):
                    artifact = _execute(session, statement, cfg)
                    if context.stop.reason is not None:
                        # an interrupted SLEEP, or a rest of rows, ends without an error: nothing may be committed
                        raise NodeStopped(context.stop.reason)
                    counted = "1 row" if artifact["rowCount"] == 1 else f"{artifact['rowCount']} rows"
                    context.log(f"statement {number} of {len(statements)} on {cfg.source}: {counted}")
        except SqlFailed as error:
            raise NodeFailed(f"{cfg.source}: {error}") from None
        return NodeResult(artifact=artifact)

    def _url(self, source: str) -> URL:
        environment = self._environment
        if environment is None:
            raise NodeFailed("this process knows no data sources", may_retry=False)
        try:
            url = Sources(environment.engine, environment.source_urls).url(source)
        except SourceError as error:
            raise NodeFailed(str(error), may_retry=False) from None
        if url.get_backend_name() == "postgresql":
            expected = "nodes of type sql use MySQL, MariaDB and SQLite; models can read PostgreSQL"
            raise NodeFailed(f"the source {source} is PostgreSQL: {expected}", may_retry=False)
        return url


def _execute(session: Session, statement: str, cfg: SqlCfg) -> dict[str, Any]:
    """The columns and rows of a query, or the number of rows that another statement changed."""
    clause = text(statement)
    # a parameter that another statement uses is not this one's
    used = {name: value for name, value in cfg.parameters.items() if name in clause.compile().params}
    result = session.connection.execute(clause, used)
    if not result.returns_rows:
        return {"rowCount": max(0, result.rowcount)}
    columns = list(result.keys())
    rows = result.fetchmany(cfg.max_rows + 1)
    shown = [{name: _json(value) for name, value in zip(columns, row, strict=True)} for row in rows[: cfg.max_rows]]
    is_cut = len(rows) > cfg.max_rows
    if is_cut:
        session.leave(result)
    return {"columns": columns, "rows": shown, "rowCount": len(shown), "truncated": is_cut}


def _json(value: Any) -> Any:
    """Exact numbers and times as text, bytes in base64."""
    match value:
        case None | str() | bool() | int() | float():
            return value
        case Decimal() | timedelta():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case bytes() | bytearray():
            return base64.b64encode(bytes(value)).decode()
    return str(value)
