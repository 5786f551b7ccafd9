"""What a home knows of its demo: when it began, whether it is written or removed, and who works on it now."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from platform_defs.errors import PlatformError

FOLDER = "demo"


class DemoError(PlatformError):
    """The demo could not be written or removed; the message says what to do."""


class DemoStatus(StrEnum):
    # also after a kill midway: the next start completes it
    BEGUN = "begun"
    WRITTEN = "written"
    # an embedded start brings it back only if it is asked to
    REMOVED = "removed"


@dataclass(frozen=True)
class DemoState:
    """`born` is the moment from which all days of the demo count, so that writing it again writes the same."""

    status: DemoStatus
    born: datetime
    # the run of the chain that waits for a retry
    chain_run: str | None = None
    # whether somebody has seen that what the printed lines say is true
    settled: bool = False

    def now(self, status: DemoStatus, *, chain_run: str | None = None) -> "DemoState":
        return replace(self, status=status, chain_run=chain_run or self.chain_run)


def folder_of(home: Path) -> Path:
    return home / FOLDER


def shop_file(home: Path) -> Path:
    """The SQLite file that the shop keeps its orders in."""
    return folder_of(home) / "shop.db"


def read_state(home: Path) -> DemoState | None:
    """None if the home has never had a demo."""
    path = _path(home)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return DemoState(
            DemoStatus(content["status"]),
            datetime.fromisoformat(content["born"]),
            content.get("chain_run"),
            content.get("settled", False),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DemoError(
            f"{path} cannot be read ({error}); delete it and run `platform up --demo`, which writes the demo anew"
        ) from None


def write_state(home: Path, state: DemoState) -> None:
    path = _path(home)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({**asdict(state), "born": state.born.isoformat()}, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def begin(home: Path, *, asked: bool | None, embedded: bool, is_new: bool) -> DemoState | None:
    """The demo that a start of the platform has; None without one.

    `asked` is what the operator said, if anything. The default is a demo with an embedded store which this start has
    created (`is_new`), or which has one already: whoever had a platform before there was a demo did not ask for it.
    """
    known = read_state(home)
    removed = known is not None and known.status is DemoStatus.REMOVED
    usual = embedded and (is_new if known is None else not removed)
    if not (usual if asked is None else asked):
        return None
    if known is None or removed:
        known = DemoState(DemoStatus.BEGUN, datetime.now(UTC).replace(microsecond=0))
        write_state(home, known)
    return known


def forget_begun(home: Path) -> None:
    """Forgets a demo of which nothing could be written, because its tenant is somebody else's."""
    known = read_state(home)
    if known is not None and known.status is DemoStatus.BEGUN:
        _path(home).unlink()


@contextmanager
def exclusive(home: Path) -> Iterator[None]:
    """Held while the demo is written or removed; raises if somebody else does either."""
    folder = folder_of(home)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise DemoError("another process writes or removes the demo now; try again in some seconds") from None
    finally:
        os.close(descriptor)


def _path(home: Path) -> Path:
    return folder_of(home) / "state.json"
