"""A MySQL and a Neo4j that a test or benchmark may stop and start, from the programs that `make services` fetches."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.needs import ROOT, require

SCRIPTS = ROOT / "tests" / "servers"
# where the scripts look for a free port first: apart from the servers that all tests share
PORTS = {"mysql": "14516", "neo4j": "18897"}
# a busy machine may need minutes
START_SECONDS = "600"
PROGRAMS = {"mysql": "root", "neo4j": "lib"}


class OwnServers:
    """Both servers, in a folder of their own. `start` returns when they answer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        programs = Path(require("server programs"))
        for name, program in PROGRAMS.items():
            (folder / name).mkdir()
            if (programs / name / program).exists():
                (folder / name / program).symlink_to(programs / name / program)

    def url(self, name: str) -> str:
        return (self._folder / name / "url").read_text().strip()

    def start(self) -> None:
        with ThreadPoolExecutor(len(PORTS)) as pool:
            list(pool.map(lambda name: self._run(f"{SCRIPTS / name} start"), PORTS))

    def stop(self, *names: str) -> None:
        for name in names or PORTS:
            self._run(f". {SCRIPTS / 'lib.sh'}; stop_server {name}")

    def _run(self, command: str) -> None:
        ports = {f"SERVICES_{name.upper()}_PORT": port for name, port in PORTS.items()}
        variables = os.environ | ports | {"SERVICES_DIR": str(self._folder), "START_SECONDS": START_SECONDS}
        log = self._folder / "scripts.log"
        with log.open("ab") as output:
            # to a file: a server that is started would keep a pipe open
            done = subprocess.run(["bash", "-euc", command], env=variables, stdout=output, stderr=output)
        assert done.returncode == 0, log.read_text()


@contextmanager
def own_servers() -> Iterator[OwnServers]:
    # a short path: that of MySQL's socket may not have more than 107 bytes
    with tempfile.TemporaryDirectory(prefix="servers-") as folder:
        servers = OwnServers(Path(folder))
        try:
            servers.start()
            yield servers
        finally:
            servers.stop()
