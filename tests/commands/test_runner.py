"""What `platform runner status` tells while nothing runs."""

import json

from platform_defs.store.engine import open_engine
from platform_defs.work.sensor_ticks import note_tick
from tests.commands.command_line import RunPlatform


def test_sensors_of_a_platform_that_does_not_run_are_not_called_stuck(run_platform: RunPlatform) -> None:
    engine = open_engine(json.loads(run_platform("db", "status", "--json")[1])["database"])
    note_tick(engine, "arrivals", "it could not begin what is due")
    engine.dispose()
    code, out, err = run_platform("runner", "status")
    assert (code, out) == (1, "0 waiting, 0 running\n")
    assert err == "platform: no runner is alive; `platform up` or `platform runner` starts one\n"
