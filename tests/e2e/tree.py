"""A copy of the platform's code that a test may change while it runs."""

import shutil
from pathlib import Path

from platform_defs.runner.fingerprint import PACKAGES

ROOT = Path(__file__).resolve().parents[2]


def copy_with_probes(folder: Path) -> Path:
    """The code, with the probe jobs among its definitions, and with its bytecode: a platform has ten processes."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package)
    shutil.copy(Path(__file__).with_name("probe_jobs.py"), folder / "assets" / "probe.py")
    gather = folder / "assets" / "__init__.py"
    text = gather.read_text()
    changed = text.replace("from assets import ", "from assets import probe, ").replace(
        "SYSTEMS = (", "SYSTEMS = (probe, "
    )
    assert changed.count("probe") == 2, "assets/__init__.py no longer gathers its modules as this copy expects"
    gather.write_text(changed)
    return folder
