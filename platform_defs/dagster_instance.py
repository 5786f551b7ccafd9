"""The configuration of the platform's Dagster instance: dagster.yaml, workspace.yaml and the storage it names."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy.engine import URL

from platform_defs.errors import SettingsError, StoreError, one_line
from platform_defs.settings import Settings
from platform_defs.store.create_database import ensure_database

LOCATION = "platform"
MODULE = "platform_defs.definitions"
# Our packages. While Dagster loads a module it searches its working directory first, and not the first folder of the
# path, which may be one that PYTHONPATH names.
FOLDER = str(Path(__file__).parents[1])
# Names of assets may differ only by case. With a case-insensitive collation MySQL would take them for one.
COLLATION = "utf8mb4_bin"
# The folder of the embedded storage under DAGSTER_HOME.
INSTANCE = "instance"
# How often the evaluation of a schedule is tried again if it fails: about every five seconds, so for half an hour. The
# platform's database may be away when a chain is due, while Dagster's is not.
SCHEDULE_RETRIES = 360


def prepare(settings: Settings, *, on_created: Callable[[str], None] = lambda database: None) -> Path:
    """Writes dagster.yaml and creates the storage, before any process of Dagster starts. Returns DAGSTER_HOME.

    `on_created` hears the name of a database that did not exist.
    """
    home = settings.dagster_home
    home.mkdir(parents=True, exist_ok=True)
    if "storage" not in _overrides(settings):
        _create_storage(settings, on_created)
    _write(home / "dagster.yaml", instance_config(settings))
    return home


def uses_warm_launcher(settings: Settings) -> bool:
    """Whether our runner executes runs. The operator's own configuration may name another launcher instead."""
    return "run_launcher" not in _overrides(settings)


def instance_config(settings: Settings) -> dict[str, Any]:
    return _defaults(settings) | _overrides(settings)


def _overrides(settings: Settings) -> dict[str, Any]:
    if settings.dagster_config is None:
        return {}
    try:
        content = yaml.safe_load(settings.dagster_config.read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise SettingsError(f"PLATFORM_DAGSTER_CONFIG: {one_line(error)}") from None
    if not isinstance(content, dict):
        raise SettingsError(f"PLATFORM_DAGSTER_CONFIG: {settings.dagster_config} holds no mapping of keys")
    return content


def _defaults(settings: Settings) -> dict[str, Any]:
    home = settings.dagster_home
    return {
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},  # A dialog that asks the first visitor for a mail address.
        "storage": _storage(settings.dagster_database_url, home),
        "local_artifact_storage": _configurable(
            "dagster._core.storage.root", "LocalArtifactStorage", base_dir=str(home)
        ),
        "compute_logs": _configurable(
            "dagster._core.storage.local_compute_log_manager",
            "LocalComputeLogManager",
            base_dir=str(home / "storage"),
        ),
        # Every run is launched at once: its row of work then waits for a slot of the runner.
        "run_coordinator": _configurable("dagster._core.run_coordinator", "DefaultRunCoordinator"),
        "run_launcher": _configurable("platform_defs.runner.launcher", "WarmRunLauncher"),
        # Dagster's own default is to forget a time of a schedule at which its evaluation failed once.
        "scheduler": _configurable(
            "dagster._core.scheduler.scheduler", "DagsterDaemonScheduler", max_tick_retries=SCHEDULE_RETRIES
        ),
        # A run may wait long for a slot, so its age says nothing. The runner closes runs that died before the start.
        "run_monitoring": {
            "enabled": True,
            "start_timeout_seconds": 86_400,
            "poll_interval_seconds": 15,
            "free_slots_after_run_end_seconds": 60,
        },
        **_tick_retention(settings.dagster_retention_days),
    }


def _tick_retention(days: int) -> dict[str, Any]:
    """Dagster deletes old ticks itself. Sensors that find nothing to do write forty thousand a day."""
    if days == 0:
        return {}
    purge = {"purge_after_days": {"skipped": 1, "started": days, "success": days, "failure": days}}
    return {"retention": {"sensor": purge, "schedule": purge}}


def write_workspace(settings: Settings, host: str, port: int) -> Path:
    """Writes the workspace of webserver and daemon. Both use the same code server, and so see the same definitions."""
    path = settings.dagster_home / "workspace.yaml"
    _write(path, {"load_from": [{"grpc_server": {"host": host, "port": port, "location_name": LOCATION}}]})
    return path


def _create_storage(settings: Settings, on_created: Callable[[str], None]) -> None:
    if url := settings.dagster_database_url:
        from platform_defs.dagster_storage.mysql import PooledMySQLStorage

        try:
            created = ensure_database(url, collation=COLLATION)
        except StoreError as error:
            if settings.dagster_db_url:
                raise SettingsError(f"PLATFORM_DAGSTER_DB_URL: {error}") from error
            raise
        if created:
            on_created(str(url.database))
        PooledMySQLStorage.create(url)
    elif not (settings.dagster_home / INSTANCE / "event_log.db").exists():
        from platform_defs.dagster_storage.embedded import EmbeddedStorage

        EmbeddedStorage.create(settings.dagster_home / INSTANCE)


def _storage(url: URL | None, home: Path) -> dict[str, Any]:
    if url is None:
        storage = _configurable(
            "platform_defs.dagster_storage.embedded", "EmbeddedStorage", base_dir=str(home / INSTANCE)
        )
        return {"custom": storage}
    return {
        "custom": _configurable(
            "platform_defs.dagster_storage.mysql",
            "PooledMySQLStorage",
            # From the environment, because the URL holds a password and the file must not.
            mysql_url={"env": "PLATFORM_DAGSTER_DB_URL"},
        )
    }


def _configurable(module: str, name: str, **config: Any) -> dict[str, Any]:
    return {"module": module, "class": name} | ({"config": config} if config else {})


def environment(settings: Settings) -> dict[str, str]:
    """The variables that every process needs that opens the instance."""
    variables = {
        "DAGSTER_HOME": str(settings.dagster_home),
        "PLATFORM_HOME": str(settings.home),
        # A folder `assets` in the working directory must not be imported instead of ours.
        "PYTHONSAFEPATH": "1",
    }
    if url := settings.dagster_database_url:
        variables["PLATFORM_DAGSTER_DB_URL"] = url.render_as_string(hide_password=False)
    return variables


def _write(path: Path, content: dict[str, Any]) -> None:
    """Replaces the file in one step, because another process may be reading it."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    partial.replace(path)
