"""A source that is removed takes its own rows with it, and nothing of a source whose code begins like its own."""

from sqlalchemy import Engine, select

from platform_defs.ingest.registry.removal import forget_sources
from platform_defs.store.engine import read, transact
from platform_defs.store.tables.rate_gate import rate_gate

GATES = ["ingest:my_lib", "ingest:my_lib:books", "ingest:my_lib:books:key"]
OTHERS = ["ingest:my_lib2", "ingest:my_lib2:books", "ingest:my-lib:books", "chains:my_lib"]


def test_the_rate_gates_of_other_sources_stay(engine: Engine) -> None:
    rows = [{"gate_key": key} for key in [*GATES, *OTHERS]]
    transact(engine, lambda connection: connection.execute(rate_gate.insert(), rows))
    forget_sources(engine, ["my_lib"])
    left = read(engine, lambda connection: connection.execute(select(rate_gate.c.gate_key)).scalars().all())
    assert sorted(left) == sorted(OTHERS)
