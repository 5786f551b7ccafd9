"""Drives a run of a chain with the node types of this platform, in a process that Dagster started."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

from sqlalchemy import Engine

from platform_defs.chain_nodes.catalogue import all_node_types
from platform_defs.chains.nodes.execution import perform
from platform_defs.chains.runs.driver import PARALLEL, RunDriver
from platform_defs.chains.runs.drives import Drive
from platform_defs.settings import Settings
from platform_defs.work.wake import wake
from resources.database import DatabaseResource

# One connection for each node that runs, and some for the drive and for node types that hold one.
CONNECTIONS = PARALLEL + 4


@contextmanager
def opened_engine() -> Iterator[Engine]:
    with DatabaseResource(pool_size=CONNECTIONS).open() as engine:
        yield engine


@contextmanager
def opened_driver(
    engine: Engine, drive: Drive, *, interrupted: Callable[[], bool], may_park: bool
) -> Iterator[RunDriver]:
    settings = Settings.load()
    with closing(all_node_types(engine, settings)) as types:
        yield RunDriver(
            engine,
            drive.run_id,
            drive.drive_no,
            partial(perform, engine, types),
            interrupted=interrupted,
            may_park=may_park,
            wake=lambda: wake(settings.home),
        )
