"""The asset graph as a Dagster resource: embedded beside the other tables, or Neo4j."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from dagster import ConfigurableResource, InitResourceContext, ResourceDependency
from pydantic import PrivateAttr

from platform_defs.graph.open import open_graph
from platform_defs.graph.port import Graph
from platform_defs.settings import Settings
from resources.database import DatabaseResource


class GraphResource(ConfigurableResource["GraphResource"]):
    """The graph of PLATFORM_GRAPH_URL."""

    database: ResourceDependency[DatabaseResource]

    _graph: Graph | None = PrivateAttr(default=None)

    @contextmanager
    def yield_for_execution(self, context: InitResourceContext) -> Iterator["GraphResource"]:
        with closing(open_graph(Settings.load(), self.database.engine)) as graph:
            self._graph = graph
            try:
                yield self
            finally:
                self._graph = None

    @property
    def graph(self) -> Graph:
        if self._graph is None:
            raise RuntimeError("the graph resource is only open during a run")
        return self._graph
