"""A copy of the platform's code that a test may change while it runs."""

import re
import shutil
from pathlib import Path

from platform_defs.runner.fingerprint import PACKAGES
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
# How long a stopping runner may take, by module of platform_defs: after that it leaves without a word, or is killed by
# the supervisor.
LIMITS_OF_A_STOP = {
    "runner/run_processes.py": ("ANNOUNCE_S",),
    "work/runners.py": ("STOP_GRACE_S", "LEAVE_AFTER_S"),
}


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


def give_time_to_stop(tree: Path) -> Path:
    """Lets the runner of a copy take as long for a stop as a test waits: a busy machine needs more than seconds."""
    for module, names in LIMITS_OF_A_STOP.items():
        path = tree / "platform_defs" / module
        text = path.read_text()
        for name in names:
            text, count = re.subn(rf"^{name} = .*$", f"{name} = {PATIENCE_S}", text, flags=re.MULTILINE)
            assert count == 1, f"{module} no longer defines {name} as this copy expects"
        path.write_text(text)
    return tree
