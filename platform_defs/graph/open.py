"""Opens the graph that the settings name: embedded or Neo4j."""

from sqlalchemy import Engine

from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.neo4j import Neo4jGraph, Timeouts
from platform_defs.graph.port import Graph
from platform_defs.settings import Settings


def open_graph(settings: Settings, engine: Engine, *, timeouts: Timeouts | None = None) -> Graph:
    """The graph of PLATFORM_GRAPH_URL. Opening it does not connect; `ping` tells whether it answers."""
    if settings.graph_url == "embedded":
        return EmbeddedGraph.on(engine)
    return Neo4jGraph(settings.graph_url, user=settings.graph_user, password=settings.graph_secret, timeouts=timeouts)
