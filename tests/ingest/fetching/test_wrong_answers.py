"""Answers of which nothing can be stored fail their window: to set everything aside would call it complete."""

import pytest
from sqlalchemy import Engine

from platform_defs.ingest.codes import Operation, PlanStatus
from platform_defs.ingest.cursors.operations import read_watermark
from platform_defs.ingest.fetching.page_fetching import FEWEST_UNREADABLE, MOST_REFUSED
from platform_defs.ingest.ledger.windows import open_windows
from platform_defs.ingest.tasks.blocks import list_blocks
from platform_defs.store.tables.ingest import ing_record_quarantine
from tests.ingest.execution.memory_source import MemorySource
from tests.ingest.execution.test_executor import drain, items_of, paged, stored, two_phase
from tests.ingest.planning.test_planner import rows_of

pytestmark = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
NAMES = ("made_up", "items", Operation.HARVEST)


def test_a_source_that_refuses_every_id_that_it_listed_fails_the_window(engine: Engine) -> None:
    spec = two_phase()
    found = items_of(60)
    source = MemorySource(spec.pagination, found, bad_ids=[each["id"] for each in found])
    _, status = drain(engine, spec, source)
    assert status is PlanStatus.PARTIAL
    assert read_watermark(engine, spec) is None, "what was not stored is not behind the watermark"
    [window] = open_windows(engine, *NAMES)
    assert str(window.reason).startswith("a bad id; ")
    assert rows_of(engine, ing_record_quarantine) == []
    assert len(source.requests) < 3 * MOST_REFUSED, "hundreds of ids are not asked for one by one"
    source.bad_ids = ()
    assert drain(engine, spec, source)[1] is PlanStatus.COMPLETED
    assert len(stored(engine)) == 60


def test_some_bad_ids_next_to_each_other_are_set_aside_alone(engine: Engine) -> None:
    spec = two_phase()
    source = MemorySource(spec.pagination, items_of(10), bad_ids=["0", "1", "2", "3"])
    assert drain(engine, spec, source)[1] is PlanStatus.COMPLETED
    assert sorted(row.provider_id for row in rows_of(engine, ing_record_quarantine)) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("field", ["id", "updated"])
def test_a_page_of_which_no_item_can_be_read_blocks_the_endpoint_and_says_which_path(
    engine: Engine, field: str
) -> None:
    spec = paged(size=100)
    source = MemorySource(spec.pagination, items_of(FEWEST_UNREADABLE))
    page_of = source._page
    # the source calls the field otherwise from now on
    source._page = lambda names, url: {  # type: ignore[method-assign]
        "items": [
            {("renamed" if name == field else name): value for name, value in each.items()}
            for each in page_of(names, url)["items"]
        ]
    }
    assert drain(engine, spec, source)[1] is not PlanStatus.COMPLETED
    [block] = list_blocks(engine)
    assert f"of the first one $.{field}: " in block.reason
    assert read_watermark(engine, spec) is None
