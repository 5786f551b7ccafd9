"""The Dagster job of a DAG: one op definition, used under an alias for each node, with dependencies that only order."""

import sys
from collections.abc import Mapping

from dagster import (
    DependencyDefinition,
    GraphDefinition,
    In,
    JobDefinition,
    MultiDependencyDefinition,
    Nothing,
    Out,
    op,
)
from dagster._core.definitions.dependency import IDependencyDefinition, NodeInvocation

from assets.chains.executor import chain_executor
from assets.chains.names import NODE_TAG, aliases
from platform_defs.chains.dag import Dag

# Dagster walks along the dependencies of a job recursively, sometimes once for each node of the longest path.
RECURSION_LIMIT = 50_000
MANY_NODES = 200
AFTER = "after"


@op(name="chain_node", ins={AFTER: In(Nothing)}, out=Out(Nothing))
def chain_node() -> None:
    """A node of a chain. The executor of the job executes it, by its type and cfg in the snapshot of the run."""
    raise AssertionError("a node is executed by the executor of its chain")


def build_job(dag: Dag, name: str, *, description: str | None = None, tags: Mapping[str, str]) -> JobDefinition:
    if len(dag.nodes) > MANY_NODES:
        # For good: Dagster walks again when it makes the snapshot and the plan of the job.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))
    alias_of = aliases(dag.by_id)
    dependencies: dict[NodeInvocation, dict[str, IDependencyDefinition]] = {}
    for node in sorted(dag.nodes, key=lambda node: node.id):
        invocation = NodeInvocation(chain_node.name, alias_of[node.id], tags={NODE_TAG: node.id, "type": node.type})
        above = [DependencyDefinition(alias_of[dependency]) for dependency in sorted(node.depends_on)]
        dependencies[invocation] = {AFTER: MultiDependencyDefinition(above)} if above else {}
    graph = GraphDefinition(name, node_defs=[chain_node], dependencies=dependencies, description=description)
    return graph.to_job(name=name, description=description, tags=dict(tags), executor_def=chain_executor)
