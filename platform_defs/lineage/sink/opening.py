"""Opens a committer outside of the API process, for whoever has a few events to write."""

from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.port import Graph
from platform_defs.lineage.sink.commit import Committer, EmbeddedCommitter, ParallelCommitter
from platform_defs.lineage.sink.metrics import SinkMetrics


def open_committer(engine: Engine, graph: Graph) -> Committer:
    """The caller closes it. Its metrics are its own, and nobody reads them."""
    metrics = SinkMetrics(CollectorRegistry())
    if isinstance(graph, EmbeddedGraph):
        return EmbeddedCommitter(engine, metrics)
    return ParallelCommitter(engine, graph, metrics)
