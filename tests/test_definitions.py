"""The names that operators, links and run keys rely on: changing one is a decision, not an accident."""

import importlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from dagster import AssetKey, DagsterInstance, DagsterRunStatus, Definitions

import platform_defs.definitions
from platform_defs.arrivals.models import catalog
from platform_defs.arrivals.models.file import read_file
from platform_defs.arrivals.models.life import disable_orphaned_subscriptions
from platform_defs.chains.nodes.catalogue import node_types
from platform_defs.demo import story
from platform_defs.demo_source.registry import load_demo_sources
from platform_defs.runner.kinds_of_work import KINDS_OF_WORK, job_launch
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from tests.chains.dagster.shown import print_node
from tests.chains.making import dag, make_chain
from tests.conftest import SharedDatabases

ASSETS = ["lineage_graph", "selfcheck/database", "selfcheck/graph", "selfcheck/side_by_side", "selfcheck/work"]
JOBS = [
    "arrival_report",
    "arrivals_retention",
    "chain_run",
    "chains_retention",
    "dagster_retention",
    "ingest_drain",
    "ingest_retention",
    "lineage_apply",
    "lineage_retention",
    "model_run",
    "selfcheck",
    "webhook_send",
]
SENSORS = [
    "arrivals",
    "chain_lineage",
    "chains",
    "ingest_upkeep",
    "lineage_observations",
    "lineage_recovery",
    "lineage_tables",
    "work_recovery",
]
SCHEDULES = [
    "arrivals_retention_nightly",
    "chains_retention_nightly",
    "dagster_retention_nightly",
    "ingest_retention_nightly",
    "lineage_retention_nightly",
]
RESOURCES = ["database", "graph", "http", "ingest", "model_execution"]


@pytest.fixture(scope="module")
def defs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Definitions]:
    """Built where no database is: a developer's own models must not count."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PLATFORM_HOME", str(tmp_path_factory.mktemp("home")))
        yield importlib.reload(platform_defs.definitions).defs


def test_the_names_of_all_definitions_are_as_recorded_here(defs: Definitions) -> None:
    repository = defs.get_repository_def()
    assert sorted(key.to_user_string() for key in repository.assets_defs_by_key) == ASSETS
    assert sorted(job.name for job in repository.get_all_jobs() if not job.name.startswith("__")) == JOBS
    assert sorted(sensor.name for sensor in repository.sensor_defs) == SENSORS
    assert sorted(schedule.name for schedule in repository.schedule_defs) == SCHEDULES
    assert sorted(repository.get_top_level_resources()) == RESOURCES


OWN = "For the platform itself: "
FOR_USERS = {"arrivals", "lineage_observations", "lineage_tables", "model_run"}


def test_every_definition_explains_itself_in_the_ui_and_says_if_it_is_for_the_platform_itself(
    defs: Definitions,
) -> None:
    repository = defs.get_repository_def()
    definitions = (*repository.get_all_jobs(), *repository.sensor_defs, *repository.schedule_defs)
    for one in definitions:
        if not one.name.startswith("__"):
            assert (one.description or "").endswith("."), f"{one.name} has no description"
            assert (one.description or "").startswith(OWN) is (one.name not in FOR_USERS), one.name
    for key, asset in repository.assets_defs_by_key.items():
        assert (asset.descriptions_by_key.get(key) or "").endswith("."), f"{key} has no description"
        # without a user's models, chains and sources there are only the platform's own
        assert asset.group_names_by_key[key] == "platform", key


# those that must be told what to do, or always do something
ALWAYS_BUSY = {"chain_run", "model_run", "selfcheck"}


def test_the_partitions_of_the_selfcheck_say_what_they_are(defs: Definitions) -> None:
    asset = defs.get_repository_def().assets_defs_by_key[AssetKey(["selfcheck", "side_by_side"])]
    assert asset.partitions_def is not None
    keys = list(asset.partitions_def.get_partition_keys())
    assert (keys[0], keys[-1], len(keys)) == ("check-01-of-20", "check-20-of-20", 20)
    assert keys == sorted(keys)


def test_what_users_made_explains_itself_too_and_is_in_no_group_of_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    engine, now = open_engine(Settings.load().database_url), datetime.now(UTC)
    migrate.upgrade(engine)
    load_demo_sources(engine, "http://127.0.0.1:1", now=now)
    file = read_file(story.models_file("20261117", now, ZoneInfo("UTC")).encode(), "demo")
    catalog.save(engine, file, disable_orphaned_subscriptions)
    for model_id in story.MODELS:
        catalog.publish(engine, model_id)
    triggers = [{"cron": "0 6 * * *"}, {"table": "A"}]
    make_chain(engine, node_types(), dag(print_node("a"), triggers=triggers), name="demo_chain")
    engine.dispose()
    repository = importlib.reload(platform_defs.definitions).defs.get_repository_def()
    definitions = (*repository.get_all_jobs(), *repository.sensor_defs, *repository.schedule_defs)
    made = [one for one in definitions if "demo" in one.name and not one.name.startswith("__")]
    assert len(made) == 5, "a job with two triggers, and a schedule for each source"
    for one in made:
        assert (one.description or "").endswith("."), one.name
    assets = {key: one for key, one in repository.assets_defs_by_key.items() if "demo" in key.to_user_string()}
    assert {key.path[0] for key in assets} == {"ingest", "models", "tables"}
    for key, asset in assets.items():
        assert (asset.descriptions_by_key.get(key) or "").endswith("."), key
        assert asset.group_names_by_key[key] == key.path[0]


@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run:DeprecationWarning")
@pytest.mark.parametrize("job", sorted(set(JOBS) - ALWAYS_BUSY))
def test_a_job_with_nothing_to_do_says_so_in_its_first_line(
    defs: Definitions, job: str, migrated: SharedDatabases, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("PLATFORM_DB_URL", migrated.empty("sqlite").url.render_as_string())
    with DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def(job).execute_in_process(instance=instance)
        said = [record.user_message for record in instance.all_logs(result.run_id) if record.dagster_event is None]
    assert said[0].startswith("nothing to do: ")


PAYLOAD = {"model_id": "M", "op_time": "20251219", "run_id": "R", "trigger": "arrival of A"}
# whoever adds a kind of work says here who asks for it
WHO_ASKS = {
    "selfcheck": "operator",
    "model_run": PAYLOAD["trigger"],
    "arrival_report": "arrivals",
    "chain_run": "chain",
    "ingest_drain": "recovery",
    "lineage_apply": "recovery",
    "webhook_send": "recovery",
}


@pytest.mark.parametrize("kind", KINDS_OF_WORK)
def test_the_run_of_every_kind_of_work_says_who_asked_for_it(kind: str) -> None:
    assert job_launch(kind, PAYLOAD).run_tags(1)["user"] == WHO_ASKS[kind]


def test_every_kind_of_work_is_a_job_that_the_recovery_may_launch(defs: Definitions) -> None:
    jobs = {job_launch(kind, PAYLOAD).job_name for kind in KINDS_OF_WORK}
    assert {job.name for job in defs.get_repository_def().get_sensor_def("work_recovery").jobs} == jobs


def test_a_job_fails_in_one_line_on_a_database_that_is_behind(
    defs: Definitions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    (tmp_path / "platform.db").touch()
    with DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("selfcheck").execute_in_process(instance=instance, raise_on_error=False)
        run = instance.get_run_by_id(result.run_id)
        assert run is not None
        assert run.status is DagsterRunStatus.FAILURE
        messages = "\n".join(record.message for record in instance.all_logs(result.run_id))
        errors = "\n".join(str(event.event_specific_data) for event in result.all_events)
    assert "run `platform db upgrade`" in messages + errors
