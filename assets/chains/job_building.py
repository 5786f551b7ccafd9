"""The Dagster job of a DAG: an op definition per node type, used under an alias for each node, with dependencies that
only order.
"""

import sys
from collections.abc import Mapping
from functools import cache

from dagster import (
    DependencyDefinition,
    GraphDefinition,
    In,
    JobDefinition,
    MultiDependencyDefinition,
    Nothing,
    OpDefinition,
    Out,
    op,
)
from dagster._core.definitions.dependency import IDependencyDefinition, NodeInvocation

from assets.chains.executor import chain_executor
from assets.chains.names import NODE_TAG, aliases
from assets.op_names import op_name
from platform_defs.chains.dag import Dag

# Dagster walks along the dependencies of a job recursively, sometimes once for each node of the longest path.
RECURSION_LIMIT = 50_000
MANY_NODES = 200
AFTER = "after"
# One definition serves all nodes of a type, so its description can only say what the type does.
WHAT_TYPES_DO = {
    "print": "Writes a message into the log of its step.",
    "http": "Sends one HTTP request.",
    "sql": "Executes SQL on a named data source.",
    "shell": "Executes a command.",
    "python": "Calls a Python function.",
    "chain": "Starts another chain and waits for its end.",
    "harvest": "Fetches windows of a source of ingest.",
    "arrival": "Reports that a table is complete.",
    "wait_for_arrival": "Waits until a table is complete.",
}


@cache
def node_op(node_type: str) -> OpDefinition:
    """The op of all nodes of this type. Dagster refuses two definitions of one name in a code location."""

    @op(
        name=f"chain_node_{op_name(node_type)}",
        description=WHAT_TYPES_DO.get(node_type, f"A node of the type {node_type}."),
        ins={AFTER: In(Nothing)},
        out=Out(Nothing),
        # the UI draws it as a badge on the node
        tags={"kind": node_type},
    )
    def chain_node() -> None:
        raise AssertionError("a node is executed by the executor of its chain")

    return chain_node


def build_job(dag: Dag, name: str, *, description: str | None = None, tags: Mapping[str, str]) -> JobDefinition:
    if len(dag.nodes) > MANY_NODES:
        # For good: Dagster walks again when it makes the snapshot and the plan of the job.
        sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION_LIMIT))
    alias_of = aliases(dag.by_id)
    dependencies: dict[NodeInvocation, dict[str, IDependencyDefinition]] = {}
    for node in sorted(dag.nodes, key=lambda node: node.id):
        used = node_op(node.type).name
        invocation = NodeInvocation(used, alias_of[node.id], tags={NODE_TAG: node.id, "type": node.type})
        above = [DependencyDefinition(alias_of[dependency]) for dependency in sorted(node.depends_on)]
        dependencies[invocation] = {AFTER: MultiDependencyDefinition(above)} if above else {}
    ops = [node_op(node_type) for node_type in sorted({node.type for node in dag.nodes})]
    graph = GraphDefinition(name, node_defs=ops, dependencies=dependencies, description=description)
    return graph.to_job(name=name, description=description, tags=dict(tags), executor_def=chain_executor)
