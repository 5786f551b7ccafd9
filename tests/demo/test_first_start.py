"""`platform up` until its processes would be ready: on which homes it brings the demo, and what it says where not."""

import json
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, RunRequest, build_sensor_context

from assets.ingest.names import asset_key
from platform_defs.access.tenants import Tenant, name_tenants
from platform_defs.demo.state import DemoState, DemoStatus, read_state, write_state
from platform_defs.ingest.spec.compiler import compile_all
from platform_defs.ingest.spec.model import Spec
from platform_defs.store.engine import open_engine, transact
from platform_defs.supervisor import supervisor
from platform_defs.supervisor.child import ChildSpec
from platform_defs.supervisor.ports import find_free_port
from sensors.ingest import plan_due_windows
from tests.commands.command_line import RunPlatform


class EverythingReady:
    """In place of the supervisor: says at once that all processes are ready, and starts none."""

    started: Sequence[ChildSpec] = ()

    def __init__(
        self, children: Sequence[ChildSpec], *_: Any, on_change: Callable[[Mapping[str, int]], None], **__: Any
    ) -> None:
        type(self).started = children
        self._on_change = on_change

    async def run(self) -> None:
        self._on_change({child.name: 1 for child in self.started})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Not there yet."""
    return tmp_path / "a home"


@pytest.fixture
def platform(run_platform: RunPlatform, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunPlatform]:
    monkeypatch.setenv("PLATFORM_HOME", str(home))
    monkeypatch.setattr(supervisor, "Supervisor", EverythingReady)
    before = signal.getsignal(signal.SIGTERM)
    ports = ["--api-port", str(find_free_port("127.0.0.1")), "--ui-port", str(find_free_port("127.0.0.1"))]

    def command(*arguments: str) -> tuple[int, str, str]:
        return run_platform(*arguments, *(ports if arguments[0] == "up" else []))

    yield command
    signal.signal(signal.SIGTERM, before)


def started(platform: RunPlatform, *options: str) -> str:
    code, out, err = platform("up", *options)
    assert code == 0, err
    assert "Ready in" in out
    return out


def has_source() -> bool:
    return "demo-source" in {child.name for child in EverythingReady.started}


def demo_row(out: str) -> str:
    """What the table of addresses says of the demo."""
    return next((line.strip() for line in out.splitlines() if re.match(" +Demo  ", line)), "")


def test_the_start_that_creates_the_embedded_database_brings_the_demo_and_so_does_the_next(
    platform: RunPlatform, home: Path
) -> None:
    assert "a small shop is being written" in demo_row(started(platform))
    # as after a kill before it was written
    assert "a small shop is being written" in demo_row(started(platform))
    assert has_source()


@pytest.mark.parametrize("earlier", [("db", "upgrade"), ("up", "--no-demo")])
def test_an_embedded_home_from_before_gets_no_demo_unless_somebody_asks_for_it(
    platform: RunPlatform, home: Path, earlier: tuple[str, ...]
) -> None:
    assert platform(*earlier)[0] == 0
    for _ in range(2):
        out = started(platform)
        assert "Demo key" not in out
        assert "up --demo` brings a small shop" in demo_row(out)
        assert not has_source()
        assert not (home / "demo").exists()
        assert not (home / "demo.key").exists()
    assert "a small shop is being written" in demo_row(started(platform, "--demo"))


def test_a_first_start_that_was_killed_before_it_had_migrated_still_brings_the_demo(
    platform: RunPlatform, home: Path
) -> None:
    home.mkdir()
    (home / "platform.db").touch()
    started(platform)
    state = read_state(home)
    assert state is not None
    assert state.status is DemoStatus.BEGUN


OTHERS = [("1", "acme", "Acme"), ("1", "demo", "My shop"), ("5", "demo", "My shop")]


@pytest.mark.parametrize("tenant", OTHERS)
@pytest.mark.parametrize("begun", [False, True])
def test_where_the_demos_tenant_is_somebody_elses_a_plain_start_goes_without_and_says_so(
    platform: RunPlatform, home: Path, tenant: tuple[str, ...], begun: bool
) -> None:
    given_away(platform, home, tenant, begun=begun)
    for _ in range(2):
        said = demo_row(started(platform))
        assert f"none, because tenant {tenant[0]} is on record as '{tenant[1]}' ({tenant[2]})" in said
        assert not has_source()
        assert read_state(home) is None


@pytest.mark.parametrize("tenant", OTHERS)
@pytest.mark.parametrize("begun", [False, True])
def test_a_demo_that_is_asked_for_where_its_tenant_is_somebody_elses_is_refused_in_one_line(
    platform: RunPlatform, home: Path, tenant: tuple[str, ...], begun: bool
) -> None:
    given_away(platform, home, tenant, begun=begun)
    code, out, err = platform("up", "--demo")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert f"tenant {tenant[0]} is on record as '{tenant[1]}'" in err
    assert "`platform up --no-demo` starts without it" in err
    assert read_state(home) is None
    assert demo_row(started(platform, "--no-demo")) == ""


def test_the_demos_tenant_stays_its_own_when_a_lineage_event_has_given_it_another_name(
    platform: RunPlatform, home: Path
) -> None:
    started(platform)
    engine = open_engine(f"sqlite:///{home}/platform.db")
    transact(engine, lambda connection: name_tenants(connection, [Tenant(1, "demo", "The shop", "2026-11-17")]))
    engine.dispose()
    assert "a small shop is being written" in demo_row(started(platform))


def given_away(platform: RunPlatform, home: Path, tenant: tuple[str, ...], *, begun: bool) -> None:
    """`begun` as an earlier release left it, which could not start here any more."""
    assert platform("db", "upgrade")[0] == 0
    assert platform("tenants", "add", *tenant)[0] == 0
    if begun:
        write_state(home, DemoState(DemoStatus.BEGUN, datetime(2026, 11, 17, 12, tzinfo=UTC)))


@pytest.mark.parametrize("written", [False, True])
def test_nothing_is_harvested_from_the_demo_while_its_source_does_not_run(
    platform: RunPlatform, home: Path, written: bool
) -> None:
    started(platform)
    if written:
        write_state(home, DemoState(DemoStatus.WRITTEN, datetime(2026, 11, 17, 12, tzinfo=UTC)))
    assets = specs_of_assets(home)
    assert harvested(assets) == {"demo_crossref", "demo_pubmed"}
    for _ in range(2):
        said = demo_row(started(platform, "--no-demo"))
        assert said.startswith("Demo        not started: its sources rest, and `")
        assert said.endswith(" demo remove` takes all of it away, also its key")
        assert not has_source()
        assert demo_sources(platform) == {"demo_crossref": "inactive", "demo_pubmed": "inactive"}
        assert not harvested(assets)
        assert not specs_of_assets(home), "nor can anybody materialise their windows"
    started(platform)
    assert has_source()
    assert demo_sources(platform) == {"demo_crossref": "active", "demo_pubmed": "active"}
    assert harvested(assets) == {"demo_crossref", "demo_pubmed"}


def test_a_demo_that_was_removed_leaves_nothing_to_say_of_it(platform: RunPlatform, home: Path) -> None:
    started(platform)
    assert platform("demo", "remove")[0] == 0
    assert demo_row(started(platform)) == demo_row(started(platform, "--no-demo")) == ""
    assert not has_source()


def demo_sources(platform: RunPlatform) -> dict[str, str]:
    listed = map(json.loads, platform("registry", "list", "--json")[1].splitlines())
    return {one["code"]: one["state"] for one in listed if one["code"].startswith("demo_")}


def specs_of_assets(home: Path) -> dict[AssetKey, Spec]:
    """What the code location has been loaded with."""
    engine = open_engine(f"sqlite:///{home}/platform.db")
    try:
        return {
            asset_key(endpoint.provenance_code, endpoint.endpoint_name, operation): compiled.spec
            for endpoint in compile_all(engine, datetime.now(UTC))
            for operation, compiled in endpoint.specs.items()
        }
    finally:
        engine.dispose()


def harvested(assets: dict[AssetKey, Spec]) -> set[str]:
    """The sources of which the planner requests windows."""
    with DagsterInstance.ephemeral() as instance, build_sensor_context(instance=instance) as context:
        found = [each for each in plan_due_windows(context, assets) if isinstance(each, RunRequest)]
    return {key.path[1] for request in found for key in request.asset_selection or ()}


def test_no_demo_is_said_nothing_of_where_somebody_said_that_there_is_none(platform: RunPlatform) -> None:
    assert demo_row(started(platform, "--no-demo")) == ""
