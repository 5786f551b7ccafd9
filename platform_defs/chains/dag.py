"""The DAG of a chain: nodes with their dependencies, in an order that respects every edge."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Any


@dataclass(frozen=True)
class RetryPolicy:
    """`max_attempts` counts the first try. After try n the next one waits `backoff_millis * multiplier^(n-1)`."""

    max_attempts: int = 1
    backoff_millis: int = 1000
    backoff_multiplier: float = 2.0

    def delay_s(self, tries: int) -> float:
        """Seconds from the end of this try to the next; tries count from 1 at the start and at each manual retry."""
        return float(self.backoff_millis * self.backoff_multiplier ** (tries - 1)) / 1000


@dataclass(frozen=True)
class Node:
    """One node of a DAG, with its job resolved: what it does is its type and its cfg."""

    id: str
    type: str
    depends_on: tuple[str, ...] = ()
    cfg: Mapping[str, Any] = field(default_factory=dict)
    retry: RetryPolicy = RetryPolicy()
    timeout_s: float | None = None
    # The reusable job that gave type and cfg, if one did.
    job_id: str | None = None


@dataclass(frozen=True)
class Dag:
    """A checked DAG: ids are unique, dependencies exist, and there is no cycle."""

    job: str
    nodes: tuple[Node, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Node]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def in_order(self) -> tuple[Node, ...]:
        """Every node after all that it depends on; the same order each time."""
        sorter = TopologicalSorter({node.id: node.depends_on for node in self.nodes})
        return tuple(self.by_id[node_id] for node_id in sorter.static_order())


def parse_snapshot(dag_json: Mapping[str, Any]) -> Dag:
    """The DAG of a stored, validated snapshot: `job_run.dag_json`. User input goes through validation.py instead."""
    return Dag(job=str(dag_json.get("job", "")), nodes=tuple(_parse_nodes(dag_json["nodes"])))


def _parse_nodes(nodes: Sequence[Mapping[str, Any]]) -> Iterable[Node]:
    for node in nodes:
        retry = node.get("retry") or {}
        yield Node(
            id=node["id"],
            type=node["type"],
            depends_on=tuple(dict.fromkeys(node.get("dependsOn") or ())),
            cfg=node.get("cfg") or {},
            retry=RetryPolicy(
                max_attempts=retry.get("maxAttempts", RetryPolicy.max_attempts),
                backoff_millis=retry.get("backoffMillis", RetryPolicy.backoff_millis),
                backoff_multiplier=retry.get("backoffMultiplier", RetryPolicy.backoff_multiplier),
            ),
            timeout_s=node.get("timeoutSeconds"),
            job_id=node.get("jobId"),
        )
