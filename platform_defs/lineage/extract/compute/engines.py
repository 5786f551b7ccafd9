"""Which engine ran a job, and in which dialect its SQL is written."""

from platform_defs.lineage.events import Event, facet_of

# names that producers use -> sqlglot's dialect
_DIALECTS = {
    "athena": "athena",
    "bigquery": "bigquery",
    "clickhouse": "clickhouse",
    "databricks": "databricks",
    "doris": "doris",
    "drill": "drill",
    "druid": "druid",
    "duckdb": "duckdb",
    "hive": "hive",
    "mariadb": "mysql",
    "mssql": "tsql",
    "mysql": "mysql",
    "oracle": "oracle",
    "postgres": "postgres",
    "postgresql": "postgres",
    "presto": "presto",
    "redshift": "redshift",
    "snowflake": "snowflake",
    "spark": "spark",
    "sparksql": "spark",
    "sqlite": "sqlite",
    "sqlserver": "tsql",
    "starrocks": "starrocks",
    "teradata": "teradata",
    "trino": "trino",
    "tsql": "tsql",
}
# engines whose SQL has its own name although no parser has it
_ENGINES_WITH_SQL = frozenset({"flink", *_DIALECTS})


def engine_of(event: Event) -> str | None:
    """The engine in lower case, as `processing_engine` or else `jobType` names it."""
    return _word(facet_of(event.run_facets, "processing_engine").get("name")) or _word(
        facet_of(event.job_facets, "jobType").get("integration")
    )


def dialect_of(event: Event) -> str | None:
    """The dialect as the event says it; an orchestrator such as dbt or Airflow is an engine but no dialect.

    It is part of the SQL node's identity, so it must not depend on the datasets: a START event often has none yet.
    """
    said = _word(facet_of(event.job_facets, "sql").get("dialect"))
    if said is not None:
        return said
    for engine in (
        _word(facet_of(event.run_facets, "processing_engine").get("name")),
        _word(facet_of(event.job_facets, "jobType").get("integration")),
    ):
        if engine in _ENGINES_WITH_SQL:
            return engine
    return None


def parser_dialect(event: Event) -> str:
    """sqlglot's dialect for the event's SQL; where it says none, that of the system its tables live in."""
    said = dialect_of(event)
    if said is not None:
        return _DIALECTS.get(said.replace(" ", ""), "")
    schemes = (_DIALECTS.get(dataset.namespace.partition("://")[0].lower()) for dataset in event.datasets)
    return next(filter(None, schemes), "")


def _word(value: object) -> str | None:
    return value.strip().lower() or None if isinstance(value, str) else None
