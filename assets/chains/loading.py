"""The jobs of enabled chains, built from the database when the code location loads."""

import logging
from collections.abc import Iterable
from pathlib import Path

from dagster import JobDefinition
from sqlalchemy.exc import SQLAlchemyError

from assets.chains.job_building import build_job
from assets.chains.names import CHAIN_ID_TAG, CHAIN_TAG, VERSION_TAG, job_name
from platform_defs.chains.dag import Dag, Node
from platform_defs.chains.definitions import Chain, enabled_chains
from platform_defs.chains.errors import ChainsError
from platform_defs.chains.validation import read_dag
from platform_defs.errors import StoreError, one_line
from platform_defs.settings import Settings
from platform_defs.store.engine import read
from resources.database import DatabaseResource

_log = logging.getLogger(__name__)


def load_enabled_chains() -> list[Chain]:
    url = Settings.load().database_url
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return []  # nothing was ever set up here
    try:
        with DatabaseResource().open() as engine:
            return read(engine, enabled_chains)
    except SQLAlchemyError as error:
        raise StoreError(f"the chains cannot be read: {one_line(error)}") from None


def chain_jobs(chains: Iterable[Chain]) -> list[JobDefinition]:
    """One job per chain. A chain that other programs wrote and that is invalid is left out and logged."""
    jobs: dict[str, JobDefinition] = {}
    for chain in sorted(chains, key=lambda chain: chain.chain_id):
        try:
            dag = _dag(chain)
        except ChainsError as error:
            _log.error("chain %s has no job, because it is invalid: %s", chain.name, error)
            continue
        name = job_name(chain.chain_id, chain.name)
        tags = {CHAIN_TAG: chain.name, CHAIN_ID_TAG: chain.chain_id, VERSION_TAG: str(chain.version)}
        jobs[name] = build_job(dag, name, description=chain.description or _described(chain, dag), tags=tags)
    return list(jobs.values())


def _described(chain: Chain, dag: Dag) -> str:
    """For a chain whose author has not said what it is for."""
    nodes = "1 node" if len(dag.nodes) == 1 else f"{len(dag.nodes)} nodes"
    return f"The chain {chain.name}: {nodes}. Launching this job starts a run of it."


def _dag(chain: Chain) -> Dag:
    """The DAG as it is drawn; a node that refers to a job has its type only in the snapshot of a run."""
    nodes = read_dag(chain.dag_json, None)["nodes"]
    return Dag(
        chain.name,
        tuple(
            Node(node["id"], node.get("type") or "job", tuple(dict.fromkeys(node.get("dependsOn") or ())))
            for node in nodes
        ),
    )
