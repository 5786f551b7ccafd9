"""What queries on sources may reach: no file of a server, and of the platform's own database no table of ours.

SQL is checked by its text before it runs (see arrivals/models/sql.py). SQLite is also asked to refuse, statement by
statement, whatever the text may have hidden.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from platform_defs.store.tables import metadata

# Tables of the platform that a model may read: values, arrivals and executions.
READABLE = frozenset({"metrics_kpi_value", "metrics_etl_log", "metrics_task_log"})
HIDDEN = frozenset({*metadata.tables, "alembic_version"}) - READABLE
# Dagster's tables, for the case that Dagster's database is the platform's.
DAGSTER_TABLES = frozenset(
    {
        *("alembic_version", "asset_check_executions", "asset_daemon_asset_evaluations", "asset_event_tags"),
        *("asset_keys", "backfill_tags", "bulk_actions", "concurrency_limits", "concurrency_slots"),
        *("daemon_heartbeats", "dynamic_partitions", "event_logs", "instance_info", "instigators", "job_ticks"),
        *("jobs", "kvs", "pending_steps", "run_tags", "runs", "secondary_indexes", "snapshots"),
    }
)
# Functions that read or write files of the server, load code into it, execute a query that is hidden in a text, act on
# the server itself, or open other databases from it.
_REFUSED_FUNCTIONS = frozenset(
    {
        *("load_file", "load_extension", "readfile", "writefile", "fsdir", "edit", "fts3_tokenizer"),
        *("sys_exec", "sys_eval", "xmlparse_file", "loread", "lowrite", "ts_stat", "ts_rewrite", "set_config"),
        *("pg_stat_file", "pg_current_logfile", "pg_hba_file_rules", "pg_ident_file_mappings", "pg_reload_conf"),
        *("pg_show_all_file_settings", "pg_rotate_logfile", "pg_cancel_backend", "pg_terminate_backend", "pg_promote"),
        *("pg_switch_wal", "pg_notify", "pg_export_snapshot", "pg_backup_start", "pg_backup_stop"),
        *("pg_stat_reset", "pg_stat_reset_shared", "pg_log_backend_memory_contexts"),
        *("crosstab", "crosstabn", "connectby"),
    }
)
_REFUSED_PREFIXES = (
    *("pg_read_", "pg_ls_", "pg_file_", "pg_logical_", "pg_create_", "pg_drop_", "pg_replication_", "pg_wal_replay_"),
    *("pg_advisory_", "pg_try_advisory_", "lo_", "dblink", "postgres_fdw_"),
)
_REFUSED_SUFFIXES = ("_to_xml", "_to_xmlschema", "_to_xml_and_xmlschema")
# Views of PostgreSQL that show files of its server.
FILE_VIEWS = frozenset({"pg_file_settings", "pg_hba_file_rules", "pg_ident_file_mappings"})


def is_refused_function(name: str) -> bool:
    """Whether no query on any source may call the function."""
    name = name.lower()
    return name in _REFUSED_FUNCTIONS or name.startswith(_REFUSED_PREFIXES) or name.endswith(_REFUSED_SUFFIXES)


@dataclass(frozen=True)
class Reach:
    """The limits of the platform's own database as a source."""

    # the one schema whose tables may be read; None where it is not known yet
    schema: str | None
    hidden: frozenset[str] = HIDDEN

    def refusal(self, schema: str, table: str) -> str | None:
        """Why the table must not be read; None if it may be. `schema` is empty where the query names none."""
        if schema and self.schema is not None and schema.lower() != self.schema.lower():
            return f"the source platform reads no other schema than {self.schema}, found {schema}.{table}"
        if schema.lower() in SYSTEM_SCHEMAS:
            return f"the source platform does not read {schema}.{table}"
        if table.lower() in self.hidden or table.lower().startswith(("sqlite_", "pragma_")):
            return (
                f"the source platform does not read {table}, a table of the platform; "
                f"expected a table of yours or one of {', '.join(sorted(READABLE))}"
            )
        return None


SYSTEM_SCHEMAS = frozenset({"information_schema", "mysql", "performance_schema", "sys", "temp", "pg_catalog"})


def authorize_sqlite(reach: Reach | None) -> Callable[[int, str | None, str | None, str | None, str | None], int]:
    """The callback by which SQLite asks for every table and function that a statement uses."""

    def authorize(action: int, first: str | None, second: str | None, schema: str | None, trigger: str | None) -> int:
        if action == sqlite3.SQLITE_ATTACH:
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_FUNCTION and is_refused_function(second or ""):
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA and reach is not None:
            return sqlite3.SQLITE_DENY
        is_hidden = reach is not None and reach.refusal(schema or "", first or "") is not None
        if action == sqlite3.SQLITE_READ and is_hidden:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    return authorize
