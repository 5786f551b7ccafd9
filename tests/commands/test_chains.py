"""What `platform chains` tells of runs."""

import json

from platform_defs.store.engine import open_engine
from tests.chains.nodes.drivers import Drivers
from tests.commands.command_line import RunPlatform

FAILING = {"id": "count", "type": "print", "cfg": {"message": "${params.missing}"}}


def test_a_list_of_runs_says_which_node_failed_and_why(run_platform: RunPlatform) -> None:
    database = json.loads(run_platform("db", "status", "--json")[1])
    engine = open_engine(database["database"])
    drivers = Drivers(engine)
    assert drivers.until_ended(drivers.start(drivers.chain("close", FAILING, {**FAILING, "id": "tell"}))) == "FAILED"
    engine.dispose()
    header, line = run_platform("chains", "runs")[1].splitlines()
    assert header.endswith("error")
    assert "count: " in line
    assert "params.missing is missing" in line
    assert line.endswith("(and 1 more node; `platform chains nodes` lists them)")
    assert json.loads(run_platform("chains", "runs", "--json")[1])["node_errors"].keys() == {"count", "tell"}
