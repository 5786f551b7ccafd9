"""Checks a DAG that a user wrote: its shape, its ids, its edges, and each node by its type. Reports all problems."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from typing import Any

from platform_defs.chains.dag import RetryPolicy, parse_snapshot
from platform_defs.chains.errors import InvalidChain
from platform_defs.chains.json_values import MEBIBYTE, json_problem, read_json_text
from platform_defs.chains.nodes import catalogue
from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.triggers import trigger_problems

NO_NODES = "dag must have nodes"
MAX_NODES = 2000
# The audit keeps a chain before and after a change in one row, and a statement on MariaDB has at most 16 MiB.
MAX_DAG_BYTES = 4 * MEBIBYTE
MAX_JOB_NAME = 128
MAX_ATTEMPTS = 100
MAX_BACKOFF_MILLIS = 86_400_000
MAX_MULTIPLIER = 10
MAX_DELAY_S = 7 * 86_400
MAX_TIMEOUT_S = 7 * 86_400
NODE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
# A message with thousands of problems helps nobody.
MAX_SHOWN = 50
_LONGEST_CYCLE = 20

_DAG_FIELDS = ("job", "nodes", "triggers")
_NODE_FIELDS = ("id", "type", "jobId", "dependsOn", "cfg", "retry", "timeoutSeconds")
_RETRY_FIELDS = ("maxAttempts", "backoffMillis", "backoffMultiplier")


def read_dag(given: Any, types: NodeTypes | None) -> dict[str, Any]:
    """The checked dagJson, given as an object or as the text of one; raises InvalidChain with every problem.

    Without `types` the nodes' types and cfgs are not looked at.
    """
    if isinstance(given, str):
        try:
            given = read_json_text(given)
        except ValueError as error:
            raise InvalidChain([f"dagJson: {error}"]) from None
    if not isinstance(given, dict):
        raise InvalidChain([f"dagJson: expected a JSON object with nodes, got {_kind(given)}"])
    problem = json_problem(given, max_bytes=MAX_DAG_BYTES)
    problems = [f"dagJson: {problem}"] if problem else list(dag_problems(given, types))
    if problems:
        raise InvalidChain(_shown(problems))
    return given


def dag_problems(dag: Mapping[str, Any], types: NodeTypes | None) -> Iterator[str]:
    """One line for each problem of a dagJson."""
    nodes = dag.get("nodes")
    if nodes is None or nodes == []:
        yield NO_NODES
        return
    if not isinstance(nodes, list):
        yield f"nodes: expected a list of nodes, got {_kind(nodes)}"
        return
    if len(nodes) > MAX_NODES:
        yield f"dag must have at most {MAX_NODES} nodes, got {len(nodes)}"
        return
    yield from _misspelt(dag, _DAG_FIELDS, "")
    job = dag.get("job")
    if job is not None and (not isinstance(job, str) or len(job) > MAX_JOB_NAME):
        yield f"job: expected a name of at most {MAX_JOB_NAME} characters, got {_shorten(job)}"
    yield from trigger_problems(dag.get("triggers"))
    for index, node in enumerate(nodes):
        yield from _node_problems(index, node, types)
    named = [node for node in nodes if isinstance(node, dict) and isinstance(node.get("id"), str)]
    wrong_edges = list(_edge_problems(named))
    yield from wrong_edges
    if types is not None and not wrong_edges and len(named) == len(nodes):
        yield from _reference_problems(named, types)


def _node_problems(index: int, node: Any, types: NodeTypes | None) -> Iterator[str]:
    if not isinstance(node, dict):
        yield f"nodes[{index}]: expected an object, got {_kind(node)}"
        return
    node_id = node.get("id")
    if not isinstance(node_id, str) or not NODE_ID.fullmatch(node_id):
        yield (
            f"nodes[{index}]: id: expected 1 to 255 letters, digits, '_', '-' or '.', beginning with a letter, a digit"
            f" or '_', got {_shorten(node_id)}"
        )
        name = f"nodes[{index}]"
    else:
        name = f"node {node_id}"
    yield from _misspelt(node, _NODE_FIELDS, f"{name}: ")
    yield from (f"{name}: {problem}" for problem in _action_problems(str(node_id), node, types))
    yield from (f"{name}: {problem}" for problem in retry_problems(node.get("retry")))
    timeout = node.get("timeoutSeconds")
    if timeout is not None and not (_is_number(timeout) and 0 < timeout <= MAX_TIMEOUT_S):
        yield f"{name}: timeoutSeconds: expected a number above 0, at most {MAX_TIMEOUT_S}, got {_shorten(timeout)}"


def _action_problems(node_id: str, node: Mapping[str, Any], types: NodeTypes | None) -> Iterator[str]:
    """What the node does: a type with its cfg, or the id of a reusable job, which has both."""
    job_id, type_name, cfg = node.get("jobId"), node.get("type"), node.get("cfg")
    if job_id is not None:
        if not isinstance(job_id, str) or not job_id:
            yield f"jobId: expected the id of a job, got {_shorten(job_id)}"
        for field in ("type", "cfg"):
            if node.get(field) is not None:
                yield f"{field}: expected none, because the job that jobId names has it"
        return
    if not isinstance(type_name, str) or not type_name:
        yield f"type: expected the name of a node type, or a jobId in its place, got {_shorten(type_name)}"
    elif cfg is not None and not isinstance(cfg, dict):
        yield f"cfg: expected an object, got {_kind(cfg)}"
    elif types is not None:
        yield from action_problems(types, node_id, type_name, cfg or {})


def action_problems(types: NodeTypes, node_id: str, type_name: str, cfg: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a type and its cfg, of a node or of a job."""
    if type_name not in types:
        yield f"type: expected one of {', '.join(sorted(types.by_name))}, got {_shorten(type_name)}"
        return
    for problem in catalogue.cfg_problems(types, node_id, type_name, cfg):
        yield problem.removeprefix(f"node {node_id}: ")


def _reference_problems(nodes: Sequence[Mapping[str, Any]], types: NodeTypes) -> list[str]:
    """Expressions over nodes that need not have ended before, for nodes whose ids and edges are sound.

    Other fields may be wrong, and what a job says is not known until a run starts: neither is looked at.
    """
    readable = [
        {
            "id": node["id"],
            "type": node["type"] if isinstance(node.get("type"), str) else "",
            "dependsOn": node.get("dependsOn"),
            "cfg": node["cfg"] if isinstance(node.get("cfg"), dict) else {},
        }
        for node in nodes
    ]
    return catalogue.dag_problems(types, parse_snapshot({"nodes": readable}))


def retry_problems(retry: Any) -> Iterator[str]:
    if retry is None:
        return
    if not isinstance(retry, dict):
        yield f"retry: expected an object, got {_kind(retry)}"
        return
    yield from _misspelt(retry, _RETRY_FIELDS, "retry: ")
    attempts = retry.get("maxAttempts", RetryPolicy.max_attempts)
    millis = retry.get("backoffMillis", RetryPolicy.backoff_millis)
    multiplier = retry.get("backoffMultiplier", RetryPolicy.backoff_multiplier)
    before = len(problems := [])
    if not (_is_whole(attempts) and 1 <= attempts <= MAX_ATTEMPTS):
        problems.append(
            f"retry.maxAttempts: expected a whole number from 1 to {MAX_ATTEMPTS}, got {_shorten(attempts)}"
        )
    if not (_is_whole(millis) and 0 <= millis <= MAX_BACKOFF_MILLIS):
        problems.append(
            f"retry.backoffMillis: expected a whole number from 0 to {MAX_BACKOFF_MILLIS}, got {_shorten(millis)}"
        )
    if not (_is_number(multiplier) and 1 <= multiplier <= MAX_MULTIPLIER):
        problems.append(
            f"retry.backoffMultiplier: expected a number from 1 to {MAX_MULTIPLIER}, got {_shorten(multiplier)}"
        )
    if len(problems) == before and attempts > 1:
        longest = RetryPolicy(attempts, millis, multiplier).delay_s(attempts - 1)
        if longest > MAX_DELAY_S:
            problems.append(
                f"retry: expected at most {MAX_DELAY_S} seconds between two attempts,"
                f" got {longest:.3g} before attempt {attempts}"
            )
    yield from problems


def _edge_problems(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    counts = Counter(node["id"] for node in nodes)
    for node_id, count in counts.items():
        if count > 1:
            yield f"node {node_id}: id: expected a different id for every node, got this one {count} times"
    edges: dict[str, list[str]] = {node_id: [] for node_id in counts}
    for node in nodes:
        above = node.get("dependsOn")
        if above is None:
            continue
        if not isinstance(above, list) or not all(isinstance(one, str) for one in above):
            yield f"node {node['id']}: dependsOn: expected a list of node ids, got {_shorten(above)}"
            continue
        for one in dict.fromkeys(above):
            if one in counts:
                edges[node["id"]].append(one)
            else:
                yield f"node {node['id']}: dependsOn: expected ids of nodes of this dag, got {_shorten(one)}"
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        shown = cycle if len(cycle) <= _LONGEST_CYCLE else [*cycle[: _LONGEST_CYCLE - 1], "…", cycle[-1]]
        yield f"dag must not have a cycle, got {' -> '.join(shown)}"


def _misspelt(given: Mapping[str, Any], known: Sequence[str], prefix: str) -> Iterator[str]:
    """Fields that look like one of ours. Others are kept: clients note positions, colours and the like in a DAG."""
    folded = {field.casefold(): field for field in known}
    for field in given:
        if field in known:
            continue
        close = get_close_matches(str(field).casefold().replace("_", ""), folded, n=1, cutoff=0.6)
        if close:
            yield f"{prefix}{_shorten(field)}: expected {folded[close[0]]}, which looks like what was meant"


def _shown(problems: list[str]) -> list[str]:
    more = len(problems) - MAX_SHOWN
    return problems if more <= 0 else [*problems[:MAX_SHOWN], f"and {more} more problems"]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")


def _shorten(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
