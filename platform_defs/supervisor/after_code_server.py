"""Runs one of Dagster's processes once the code server answers: `python -m … HOST PORT MODULE ARGUMENT…`.

A webserver or daemon that runs before the code server answers shows a load error, the daemon for a whole minute. But
importing Dagster takes seconds. So the process starts at once, imports its module, and then waits for the code server.
"""

import importlib
import runpy
import sys
import time

from platform_defs.supervisor.child import NotReady
from platform_defs.supervisor.probes import code_server_probe

# The module that each process imports first, which takes nearly all of its start.
IMPORTS = {"dagster_webserver": "dagster_webserver.cli", "dagster._daemon": "dagster._daemon.cli"}
WAIT_S = 240.0


def main() -> None:
    host, port, module, *arguments = sys.argv[1:]
    importlib.import_module(IMPORTS[module])
    probe, deadline = code_server_probe(host, int(port)), time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            probe(0.0)
            break
        except NotReady:
            time.sleep(0.05)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
