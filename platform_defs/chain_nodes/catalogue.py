"""All node types of this platform, for whoever checks or executes chains."""

from sqlalchemy import Engine

from platform_defs.chain_nodes.arrival import ArrivalExecutor, WaitForArrivalExecutor
from platform_defs.chain_nodes.harvest import HarvestExecutor
from platform_defs.chains.nodes.catalogue import node_types
from platform_defs.chains.nodes.environment import NodeEnvironment
from platform_defs.chains.nodes.port import NodeExecutor, NodeTypes
from platform_defs.chains.runs.starting import start_sub_run
from platform_defs.settings import Settings
from platform_defs.work.wake import wake


def all_node_types(engine: Engine, settings: Settings | None = None) -> NodeTypes:
    """Built in, of other systems, and plug-ins. `NodeTypes.close` frees what they have opened."""
    settings = settings or Settings.load()
    environment = NodeEnvironment.from_settings(
        engine, settings, start_sub_run=start_sub_run, wake=lambda: wake(settings.home)
    )
    of_systems: list[NodeExecutor] = [
        HarvestExecutor(engine),
        ArrivalExecutor(engine, environment.wake),
        WaitForArrivalExecutor(engine),
    ]
    return node_types({executor.name: executor for executor in of_systems}, environment=environment)
