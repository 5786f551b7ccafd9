"""What `platform chains` tells of runs."""

import json

from platform_defs.store.engine import open_engine
from tests.chains.nodes.drivers import Drivers
from tests.commands.command_line import RunPlatform
from tests.work.living import living_runner

PRINT = {"type": "print", "cfg": {"message": "hello"}}
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


def test_nodes_are_listed_in_the_order_in_which_they_can_run(run_platform: RunPlatform) -> None:
    database = json.loads(run_platform("db", "status", "--json")[1])
    engine = open_engine(database["database"])
    drivers = Drivers(engine)
    line = [{**PRINT, "id": "c"}, {**PRINT, "id": "a", "dependsOn": ["c"]}, {**PRINT, "id": "b", "dependsOn": ["a"]}]
    run_id = drivers.start(drivers.chain("close", *line))
    engine.dispose()
    header, *lines = run_platform("chains", "nodes", run_id)[1].splitlines()
    assert header.startswith("node")
    assert [line[0] for line in lines] == ["c", "a", "b"]
    in_json = run_platform("chains", "nodes", run_id, "--json")[1].splitlines()
    assert [json.loads(line)["node_id"] for line in in_json] == ["c", "a", "b"]


def test_who_starts_or_repairs_a_run_is_told_if_nobody_is_there_to_execute_it(run_platform: RunPlatform) -> None:
    database = json.loads(run_platform("db", "status", "--json")[1])
    engine = open_engine(database["database"])
    drivers = Drivers(engine)
    failed = drivers.start(drivers.chain("close", FAILING))
    assert drivers.until_ended(failed) == "FAILED"
    for command in (("start", "close"), ("retry", failed, "count"), ("complete", failed, "count")):
        code, out, err = run_platform("chains", *command)
        assert (code, out.count("\n"), err.count("\n")) == (0, 1, 1)
        assert err.startswith(
            "platform: no runner is alive; `platform up` or `platform runner` starts one. Until then this waits"
        )
    living_runner(engine)
    engine.dispose()
    assert run_platform("chains", "start", "close")[2] == ""
