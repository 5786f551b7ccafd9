"""A name that is too long for Neo4j's index is left out, and its table is in the graph all the same."""

import pytest

from platform_defs.graph.model import Node
from platform_defs.lineage.facts import MAX_NAME_BYTES
from tests.lineage.deliveries import Deliveries
from tests.lineage.test_merge_stores import open_graphs
from tests.lineage.test_symlinks import deliveries, opened, place, ran
from tests.lineage.wire import dataset

__all__ = ["deliveries", "open_graphs", "opened", "place"]


@pytest.mark.parametrize("letter", ["x", "表"])
def test_a_table_has_its_qualified_name_up_to_so_many_bytes(deliveries: Deliveries, letter: str) -> None:
    most = MAX_NAME_BYTES - len("db.")
    longest = letter * (most // len(letter.encode()))
    deliveries.deliver([ran(1, [], [dataset("mysql://h", f"db.{longest}"), dataset("mysql://h", f"db.{longest}yyy")])])
    nodes = [item for item in deliveries.graph.for_tenant(deliveries.tenant.id).stream() if isinstance(item, Node)]
    tables = {node.props["name"]: node.props.get("qualifiedName") for node in nodes if "Table" in node.labels}
    assert tables == {longest: f"db.{longest}", f"{longest}yyy": None}
