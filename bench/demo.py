"""How long a newcomer waits for the demo: seconds from "Ready" to the lines that say what to try (aim: under 15).

Run it as `python -m bench.demo [STARTS]`; each start is one in a new home. The lines are printed when what they say has
been seen to be true, or after 20 s with a note that something is still under way.
"""

import sys
import tempfile
import time
from pathlib import Path

from platform_defs.demo.state import read_state
from tests.e2e.platform_up import PlatformUp
from tests.waiting import until


def seconds_to_the_lines(home: Path) -> tuple[float, bool]:
    """From "Ready" on, and whether what the lines say had been seen to be true by then."""
    up = PlatformUp(home, demo=True).until_ready()
    try:
        ready = time.monotonic()
        until("the lines of the demo", lambda: any(line.startswith("  5 end ") for line in up.lines))
        took, state = time.monotonic() - ready, read_state(home)
        return took, state is not None and state.settled
    finally:
        up.end()


def main() -> None:
    for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        with tempfile.TemporaryDirectory() as folder:
            took, settled = seconds_to_the_lines(Path(folder, "home"))
        told = "" if settled else ", with the note that something is still under way"
        print(f"start {number + 1}: {took:.1f} s from Ready to the lines{told}")


if __name__ == "__main__":
    main()
