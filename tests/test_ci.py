"""What CI does not run by mistake, it says and fails: nobody would notice a need that is silently absent for months."""

import os
import subprocess
import sys
from pathlib import Path

from tests.needs import ROOT


def complaints_in_ci(services: Path, dbt: Path, **more: str) -> set[str]:
    """Of a run of one small file. Servers that this machine lacks are complained about too: those are left out."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PLATFORM_", "PYTEST_"))}
    # programs of the servers may be on this machine's PATH, too
    variables |= {"CI": "true", "PATH": "/nowhere", "SERVICES_DIR": str(services), "PLATFORM_TEST_DBT": str(dbt)} | more
    asked = [sys.executable, "-m", "pytest", "tests/lineage/test_limits.py", "-q", "-p", "no:xdist"]
    done = subprocess.run(asked, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert " passed" in done.stdout, done.stdout + done.stderr
    said = {line.removeprefix("CI: ") for line in done.stdout.splitlines() if line.startswith("CI: ")}
    assert done.returncode == (1 if said else 0)
    return said - {f"{name} tests were not run" for name in ("mysql", "neo4j")}


def test_ci_fails_if_dbt_a_browser_or_the_programs_of_the_servers_are_absent(tmp_path: Path) -> None:
    """With Docker these programs are in its images, and no test can start servers of its own."""
    (tmp_path / "dbt-ol").touch()
    dbt, browser, programs = (f"{name} tests were not run" for name in ("dbt", "chromium", "server programs"))
    assert complaints_in_ci(tmp_path, tmp_path / "nowhere") == {dbt, browser, programs}
    (tmp_path / "docker").touch()
    assert complaints_in_ci(tmp_path, tmp_path / "nowhere") == {dbt, browser}
    assert complaints_in_ci(tmp_path, tmp_path, PLATFORM_TEST_CHROMIUM="chromium") == set()
