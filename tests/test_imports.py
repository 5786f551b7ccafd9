"""Who may import whom, as the design page draws it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Imports every module of a package, then names those of the unwanted modules that came with them.
LOADED = """
import importlib, pkgutil, sys
package, *unwanted = sys.argv[1:]
found = importlib.import_module(package)
for module in pkgutil.walk_packages(getattr(found, "__path__", []), f"{package}."):
    importlib.import_module(module.name)
print(*sorted(name for name in unwanted if name in sys.modules))
"""


def test_the_import_rules_of_the_design_page_hold() -> None:
    linted = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize(
    ("package", "unwanted"),
    [
        ("platform_defs.work", ["dagster", "fastapi"]),
        ("platform_defs.api.app", ["dagster", "platform_defs.runner"]),
        ("platform_defs.api", ["dagster", "platform_defs.runner"]),
    ],
)
def test_what_every_process_imports_loads_neither_dagster_nor_other_edges(package: str, unwanted: list[str]) -> None:
    """Import-linter reads the source; this asks a process that has imported the modules."""
    asked = [sys.executable, "-c", LOADED, package, *unwanted]
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    assert (found.returncode, found.stdout.strip(), found.stderr) == (0, "", "")
