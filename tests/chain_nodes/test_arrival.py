"""The node types `arrival` and `wait_for_arrival` over the tables of arrivals."""

from typing import Any

import pytest
from sqlalchemy import Engine, select, update

from platform_defs.arrivals.intake import Arrival, record_arrival
from platform_defs.chain_nodes.arrival import ArrivalExecutor, WaitForArrivalExecutor, wake_arrived
from platform_defs.chain_nodes.catalogue import all_node_types
from platform_defs.chains.nodes.catalogue import cfg_problems
from platform_defs.chains.nodes.port import NodeResult, Waiting
from platform_defs.settings import Settings
from platform_defs.store.engine import transact
from platform_defs.store.tables.arrivals import metrics_etl_log
from platform_defs.store.tables.chains import job_run_node
from platform_defs.store.tables.work import work
from tests.arrivals.world import add_model, write_arrival
from tests.chains.nodes.attempts import Bench, open_bench

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
on_servers_too = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("mysql", marks=pytest.mark.needs("mysql"))], indirect=True
)


def open_it(engine: Engine) -> tuple[Bench, list[str]]:
    woken: list[str] = []
    arrival = ArrivalExecutor(engine, lambda: woken.append("runner"))
    return open_bench(engine, None, arrival, WaitForArrivalExecutor(engine)), woken


@on_servers_too
def test_an_arrival_is_recorded_once_and_queues_the_models_that_it_makes_due(engine: Engine) -> None:
    add_model(engine, "m1", ["ORDERS"])
    add_model(engine, "m2", ["ORDERS", "STOCK"])
    bench, woken = open_it(engine)
    cfg = {"table": "ORDERS", "opTime": "${params.opTime}"}
    artifact = bench.artifact("arrival", cfg, {"opTime": 20251219})
    assert artifact == {"table": "ORDERS", "opTime": "20251219", "queuedModels": ["m1"], "waitingModels": ["m2"]}
    assert woken == ["runner"]
    with engine.connect() as connection:
        first = connection.execute(select(metrics_etl_log.c.arrival_time)).scalar_one()
    # the process died before the result was stored: who takes over must not have the model computed again
    bench.next_attempt()
    assert bench.artifact("arrival", cfg, {"opTime": 20251219}) == artifact
    with engine.connect() as connection:
        assert connection.execute(select(metrics_etl_log.c.arrival_time)).scalar_one() == first
        assert len(connection.execute(select(work.c.id).where(work.c.kind == "model_run")).all()) == 1


@on_servers_too
@pytest.mark.parametrize(
    ("table", "arrives"),
    [
        ("ORDERS", ("ORDERS", "20251219")),
        ("ORDERS", ("ORDERS", "2025-12-19")),
        ("ORDERS_yyyymm", ("ORDERS_202512", "20251219")),
    ],
)
def test_a_node_waits_until_its_table_has_arrived_and_is_woken_then(
    engine: Engine, table: str, arrives: tuple[str, str]
) -> None:
    bench, _ = open_it(engine)
    cfg = {"table": table, "opTime": "2025-12-19"}
    write_arrival(engine, table, "20251218")
    outcome = bench.perform("wait_for_arrival", cfg)
    assert isinstance(outcome, Waiting)
    assert outcome.waits_for == {"kind": "arrival", "table": table, "opTime": "20251219"}
    bench.set_node(waits_for=dict(outcome.waits_for))
    assert transact(engine, wake_arrived) == 0
    write_arrival(engine, *arrives)
    assert transact(engine, wake_arrived) == 1
    with engine.connect() as connection:
        assert connection.execute(select(job_run_node.c.next_try_at)).scalar_one() is not None
    found = bench.perform("wait_for_arrival", cfg)
    assert isinstance(found, NodeResult)
    assert (found.artifact["table"], found.artifact["opTime"]) == (arrives[0], "20251219")


@on_sqlite
def test_an_arrival_before_the_run_counts(engine: Engine) -> None:
    bench, _ = open_it(engine)
    record_arrival(engine, Arrival("ORDERS", "20251219"))
    assert bench.artifact("wait_for_arrival", {"table": "ORDERS", "opTime": 20251219})["table"] == "ORDERS"
    # an ETL job may have written a text there that is no time
    transact(engine, lambda connection: connection.execute(update(metrics_etl_log).values(op_time="2025-12-19")))
    assert bench.artifact("wait_for_arrival", {"table": "ORDERS", "opTime": 20251219})["opTime"] == "20251219"


@on_sqlite
@pytest.mark.parametrize(
    ("cfg", "problem"),
    [
        ({"table": "", "opTime": "20251219"}, "node n: cfg.table: expected the name of a table"),
        ({"table": "T", "opTime": "tomorrow"}, "node n: cfg.opTime: expected 4 to 14 digits"),
        ({"table": "T"}, "node n: cfg.opTime: expected a value"),
    ],
)
def test_problems_are_told_when_a_chain_is_saved(engine: Engine, cfg: dict[str, Any], problem: str) -> None:
    types = all_node_types(engine, Settings.load())
    for name in ("arrival", "wait_for_arrival"):
        assert any(text.startswith(problem) for text in cfg_problems(types, "n", name, cfg))


@on_sqlite
def test_the_platform_has_these_node_types_and_each_describes_its_cfg(engine: Engine) -> None:
    types = all_node_types(engine, Settings.load())
    described = {name: executor.cfg_model.model_json_schema() for name, executor in types.by_name.items()}
    assert sorted(described) == [
        "arrival",
        "chain",
        "harvest",
        "http",
        "print",
        "python",
        "shell",
        "sql",
        "wait_for_arrival",
    ]
    for name, schema in described.items():
        assert schema["description"], name
        assert schema["additionalProperties"] is False, name
        assert all("description" in field or "enum" in field for field in schema["properties"].values()), name
