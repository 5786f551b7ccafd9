"""The tenant's name is the one that its newest event says (seed 5.5), in any order of arrival and on every store."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest
from sqlalchemy import Engine

from platform_defs.access.errors import TenantError
from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import Tenant, add_tenant, find_tenant
from platform_defs.graph.port import Graph
from platform_defs.lineage.errors import TenantContradicted
from platform_defs.lineage.sink.opening import open_committer
from tests.graph.conftest import GRAPHS
from tests.lineage.deliveries import Arrival, Deliveries
from tests.lineage.test_merge_stores import open_graphs
from tests.lineage_events import create_table, run_event

__all__ = ["open_graphs"]
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=GRAPHS)
def deliveries(
    request: pytest.FixtureRequest, open_graphs: Callable[[str], Graph], migrated: dict[str, Engine]
) -> Iterator[Deliveries]:
    place = str(request.param)
    made = Deliveries(migrated["sqlite" if place == "neo4j" else place], open_graphs(place))
    yield made
    made.close()


def named(deliveries: Deliveries, minute: int, name: str | None) -> Arrival:
    """An event of the catalog that says the name, or one of an engine, whose key says none."""
    time = (START + timedelta(minutes=minute)).isoformat()
    if name is None:
        return Arrival(run_event(time=time, run=f"run{minute}"), START)
    tenant = deliveries.tenant
    return Arrival(create_table((tenant.id, tenant.code, name), time=time), START, SourceType.GRAVITINO)


def shown(deliveries: Deliveries) -> str:
    (line,) = [json.loads(line) for line in deliveries.lines() if '"Tenant"' in line]
    on_record = find_tenant(deliveries.engine, deliveries.tenant.id)
    assert on_record is not None
    assert on_record.name == line["props"]["name"]
    return str(line["props"]["name"])


def test_the_newest_event_that_says_a_name_decides_in_every_order(deliveries: Deliveries) -> None:
    for round, order in enumerate(permutations(range(4))):
        base = 10 * round
        events = [named(deliveries, base + at, name) for at, name in enumerate(["Old", None, f"New {round}", None])]
        for at in order:
            deliveries.deliver([events[at]])
        assert shown(deliveries) == f"New {round}"
    deliveries.rebuild()
    assert shown(deliveries) == f"New {round}"


def test_a_process_that_knows_only_the_old_name_does_not_write_it(deliveries: Deliveries) -> None:
    other = open_committer(deliveries.engine, deliveries.graph)
    with_old_name = deliveries.prepare(named(deliveries, 1, None))
    deliveries.deliver([named(deliveries, 2, "New")])
    other.commit([with_old_name])
    other.flush()
    other.close()
    assert shown(deliveries) == "New"


def test_a_tenant_that_an_event_has_renamed_can_be_added_again_under_its_first_name(deliveries: Deliveries) -> None:
    other_name = Tenant(deliveries.tenant.id, deliveries.tenant.code, "Other")
    with pytest.raises(TenantError, match="tenantName"):
        add_tenant(deliveries.engine, other_name)
    deliveries.deliver([named(deliveries, 1, "New")])
    assert add_tenant(deliveries.engine, deliveries.tenant) is False
    assert add_tenant(deliveries.engine, other_name) is False
    assert shown(deliveries) == "New"


def test_a_gateway_names_the_tenant_of_an_engine(deliveries: Deliveries) -> None:
    principal = Principal("assertion", "spark", frozenset(), SourceType.COMPUTE, deliveries.tenant, "From the gateway")
    deliveries.committer.commit([deliveries.prepare(named(deliveries, 1, None), principal)])
    assert shown(deliveries) == "From the gateway"


def test_a_name_that_is_too_long_is_refused(deliveries: Deliveries) -> None:
    with pytest.raises(TenantContradicted, match="tenantName"):
        deliveries.prepare(named(deliveries, 1, "x" * 129))
