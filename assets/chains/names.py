"""How chains are called in Dagster: the names of jobs, the aliases of nodes, tags."""

import hashlib
import keyword
import re
from collections import Counter
from collections.abc import Iterable

from dagster._core.definitions.utils import DISALLOWED_NAMES

JOB_PREFIX = "chain_"
CHAIN_TAG = "platform/chain"
CHAIN_ID_TAG = "platform/chain_id"
VERSION_TAG = "platform/chain_version"
NODE_TAG = "platform/node"
_OTHER = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST = 100
_DIGITS = 8


def job_name(key: str, name: str) -> str:
    """The job of a chain. `key` is the id of the chain, which tells apart names that are written alike in Dagster."""
    alike = _OTHER.sub("_", name)[:_LONGEST]
    return JOB_PREFIX + (alike if alike == name else _with_digest(alike, key))


def aliases(node_ids: Iterable[str]) -> dict[str, str]:
    """A name for each node that Dagster accepts and a reader recognises; no two nodes of a DAG have the same."""
    ids = sorted(node_ids)
    alike = {node_id: _OTHER.sub("_", node_id)[:_LONGEST] for node_id in ids}
    count = Counter(alias.lower() for alias in alike.values())
    return {
        node_id: alias if count[alias.lower()] == 1 and _is_allowed(alias) else _with_digest(alias, node_id)
        for node_id, alias in alike.items()
    }


def _is_allowed(alias: str) -> bool:
    return alias not in DISALLOWED_NAMES and not keyword.iskeyword(alias)


def _with_digest(alike: str, key: str) -> str:
    return f"{alike.strip('_')}_{hashlib.sha256(key.encode()).hexdigest()[:_DIGITS]}"
