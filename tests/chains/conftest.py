"""The node types that chains of these tests may use."""

import pytest

from platform_defs.chains.nodes.catalogue import node_types
from platform_defs.chains.nodes.port import NodeTypes


@pytest.fixture
def types() -> NodeTypes:
    return node_types()
