"""Finds the engine that ran a job and the dialect of its SQL."""

from platform_defs.lineage.events import Event, facet_of

# name of an engine as producers write it -> dialect of sqlglot
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
# engines that are a dialect of their own, also where sqlglot has no parser for them
_ENGINES_WITH_SQL = frozenset({"flink", *_DIALECTS})


def engine_of(event: Event) -> str | None:
    """The engine in lower case, from the facet `processing_engine` or else `jobType`."""
    return _word(facet_of(event.run_facets, "processing_engine").get("name")) or _word(
        facet_of(event.job_facets, "jobType").get("integration")
    )


def dialect_of(event: Event) -> str | None:
    """The dialect that the event names. An orchestrator such as dbt or Airflow is an engine, but not a dialect.

    The dialect is part of the SQL node's identity, so it must be the same in all events of a run. It must not depend on
    the datasets, because a START event often has none yet.
    """
    stated = _word(facet_of(event.job_facets, "sql").get("dialect"))
    if stated is not None:
        return stated
    for engine in (
        _word(facet_of(event.run_facets, "processing_engine").get("name")),
        _word(facet_of(event.job_facets, "jobType").get("integration")),
    ):
        if engine in _ENGINES_WITH_SQL:
            return engine
    return None


def parser_dialect(event: Event) -> str:
    """The dialect for sqlglot: the one that the event names, else that of the system which holds its tables."""
    stated = dialect_of(event)
    if stated is not None:
        return _DIALECTS.get(stated.replace(" ", ""), "")
    schemes = (_DIALECTS.get(dataset.namespace.partition("://")[0].lower()) for dataset in event.datasets)
    return next(filter(None, schemes), "")


def _word(value: object) -> str | None:
    return value.strip().lower() or None if isinstance(value, str) else None
