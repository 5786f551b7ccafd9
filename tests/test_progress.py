"""What somebody sees while `make` installs: one line that counts on a terminal, and whole lines in a file or pipe."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import ROOT

# What is installed already is only counted, so that nothing changes and nothing is downloaded.
INSTALL = f"{sys.executable} -m pip install --dry-run --no-index --disable-pip-version-check --require-hashes"
RULE = "counted: ; @set -o pipefail; $(INSTALL) -r requirements.lock | $(PROGRESS)"
COUNTED = re.compile(r"\r  (\d+) packages, now \S+ *")


def installed(stdout: int, stderr: int) -> None:
    # the variables of a make that runs the tests would make this one talk of folders
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", f"--eval={RULE}", f"INSTALL={INSTALL}", "counted"]
    done = subprocess.run(command, cwd=ROOT, env=variables, stdout=stdout, stderr=stderr, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("log", [False, True])
def test_on_a_terminal_one_line_counts_also_while_the_output_goes_to_a_file(tmp_path: Path, log: bool) -> None:
    shown, terminal = pty.openpty()
    with (tmp_path / "log").open("wb") as file:
        installed(file.fileno() if log else terminal, terminal)
    os.close(terminal)
    seen = read_all(shown)
    assert [int(number) for number in COUNTED.findall(seen)] == list(range(1, count_of_packages() + 1))
    assert COUNTED.sub("", seen) == "\r\n", "one line, and nothing else"
    assert (tmp_path / "log").read_text() == ""


def test_elsewhere_every_tenth_package_is_a_line(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        installed(file.fileno(), file.fileno())
    tens = range(10, count_of_packages() + 1, 10)
    assert (tmp_path / "log").read_text() == "".join(f"  {number} packages\n" for number in tens)


def count_of_packages() -> int:
    """Those of the lock that are for this system and this Python."""
    done = subprocess.run(
        [*INSTALL.split(), "-r", "requirements.lock"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.count("Requirement already satisfied")


def read_all(descriptor: int) -> str:
    """Everything that was written to a terminal of which nobody has the other end any more."""
    found = b""
    while True:
        try:
            more = os.read(descriptor, 65536)
        except OSError:
            more = b""
        if not more:
            os.close(descriptor)
            return found.decode()
        found += more
