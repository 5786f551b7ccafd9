"""Runs one of Dagster's processes once the code server answers: `python -m … HOST PORT MODULE ARGUMENT…`.

A webserver or daemon that starts before it shows a load error, the daemon for a whole minute. Starting them when it
answers would cost seconds: so they start at once, import, and wait here.
"""

import importlib
import runpy
import sys
import time

from platform_defs.supervisor.child import NotReady
from platform_defs.supervisor.probes import grpc_ping

# what each of them imports first, where nearly all of its start goes
IMPORTS = {"dagster_webserver": "dagster_webserver.cli", "dagster._daemon": "dagster._daemon.cli"}
PATIENCE_S = 120.0


def main() -> None:
    host, port, module, *arguments = sys.argv[1:]
    importlib.import_module(IMPORTS[module])
    probe, deadline = grpc_ping(host, int(port)), time.monotonic() + PATIENCE_S
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
