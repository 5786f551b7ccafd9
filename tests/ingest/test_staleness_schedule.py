"""The schedule of an endpoint refreshes one bucket a day, and all of them in turn."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from dagster import AssetKey, DagsterInstance, Definitions, RunRequest, build_schedule_context
from sqlalchemy import Engine

from assets.ingest.endpoint_assets import bucket_asset
from platform_defs.ingest.codes import Operation
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.ingest.spec.model import CompiledSpec
from resources.database import DatabaseResource
from resources.http import HttpResource
from resources.ingest import IngestResource
from sensors.ingest import staleness_schedule
from tests.ingest.registry.making import GOOD, NOW, load_text

NAME = "ingest_staleness__demo__items"
# Dagster's own doing where one resource needs another
pytestmark = pytest.mark.filterwarnings("ignore:.*")


def compiled(engine: Engine, buckets: int) -> CompiledSpec:
    text = GOOD.replace(
        "        linked_endpoint: item\n", f"        linked_endpoint: item\n        update_buckets: {buckets}\n"
    )
    load_text(engine, text, now=NOW)
    return compile_spec(engine, "demo", "items", Operation.UPDATE, now=NOW)


def requested(spec: CompiledSpec, days: list[datetime]) -> list[RunRequest]:
    """What the schedule asks for on these days, as Dagster's daemon evaluates it."""
    asset = bucket_asset(spec)
    assert asset is not None
    resource = IngestResource(database=DatabaseResource(), http=HttpResource())
    definitions = Definitions(assets=[asset], schedules=[staleness_schedule(spec.spec)], resources={"ingest": resource})
    repository = definitions.get_repository_def()
    schedule, found = repository.get_schedule_def(NAME), list[RunRequest]()
    with DagsterInstance.ephemeral() as instance:
        for day in days:
            context = build_schedule_context(instance, scheduled_execution_time=day, repository_def=repository)
            with context:
                [request] = schedule.evaluate_tick(context).run_requests or []
            found.append(request)
    return found


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("buckets", [1, 7, 16, 100])
def test_each_bucket_is_asked_for_once_in_as_many_days_as_there_are_buckets(engine: Engine, buckets: int) -> None:
    spec = compiled(engine, buckets)
    assert spec.spec.update_buckets == buckets
    # over the end of a year, and a leap day
    first = datetime(2027, 12, 20, 4, 17, tzinfo=UTC)
    found = requested(spec, [first + timedelta(days=number) for number in range(buckets)])
    width = len(str(buckets - 1))
    wanted = {f"{number:0{width}d}" for number in range(buckets)}
    assert Counter(request.partition_key for request in found) == dict.fromkeys(wanted, 1)
    assert {request.tags["platform/ingest_endpoint"] for request in found} == {"demo/items/update"}
    assert [request.tags["dagster/partition"] for request in found] == [request.partition_key for request in found]
    assert [request.asset_selection for request in found] == [
        [AssetKey(["ingest", "demo", "items", "update"])]
    ] * buckets
    assert len({request.run_key for request in found}) == buckets, "no day is taken for another one"


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_day_has_one_bucket_whenever_its_tick_is_evaluated_and_the_next_round_begins_behind_the_last(
    engine: Engine,
) -> None:
    spec, noon = compiled(engine, 16), datetime(2026, 11, 18, 12, tzinfo=UTC)
    same = requested(spec, [noon - timedelta(hours=7), noon, noon + timedelta(hours=11)])
    assert len({(request.partition_key, request.run_key) for request in same}) == 1
    today, again = requested(spec, [noon, noon + timedelta(days=16)])
    assert today.partition_key == again.partition_key
    assert today.run_key != again.run_key
