"""When a start has a demo, what its processes are told of it, and what is said at the end."""

import io
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from platform_defs.arrivals.models.due import Due
from platform_defs.arrivals.models.file import read_file
from platform_defs.demo import story
from platform_defs.demo.doors import RunningPlatform
from platform_defs.demo.guide import guide_lines, shown_dashboard
from platform_defs.demo.shop import Calendar
from platform_defs.demo.start import demo_of_start, offer_guide
from platform_defs.demo.state import DemoError, DemoState, DemoStatus, begin, exclusive, read_state, write_state
from platform_defs.settings import Settings
from platform_defs.supervisor.output import Output

BORN = datetime(2026, 11, 17, 12, tzinfo=UTC)
SERVER = "mysql+mysqlconnector://root@127.0.0.1/platform"


@pytest.mark.parametrize(
    ("asked", "embedded", "is_new", "known", "expected"),
    [
        (None, True, True, None, True),
        (None, True, False, None, False),
        (None, False, True, None, False),
        (True, True, False, None, True),
        (True, False, False, None, True),
        (False, True, True, None, False),
        (None, True, False, DemoStatus.BEGUN, True),
        (None, True, False, DemoStatus.WRITTEN, True),
        (None, True, False, DemoStatus.REMOVED, False),
        (True, True, False, DemoStatus.REMOVED, True),
        (False, True, False, DemoStatus.WRITTEN, False),
    ],
)
def test_a_demo_comes_with_a_new_embedded_store_until_it_is_removed_or_if_it_is_asked_for(
    tmp_path: Path, asked: bool | None, embedded: bool, is_new: bool, known: DemoStatus | None, expected: bool
) -> None:
    if known is not None:
        write_state(tmp_path, DemoState(known, BORN))
    found = begin(tmp_path, asked=asked, embedded=embedded, is_new=is_new)
    assert (found is not None) is expected
    if found is not None:
        assert found.status in (DemoStatus.BEGUN, DemoStatus.WRITTEN)
        assert (found.born == BORN) is (known in (DemoStatus.BEGUN, DemoStatus.WRITTEN)), "one that was removed is new"


def test_processes_are_told_of_the_shop_and_of_its_webhooks_as_an_operator_would_tell_them(tmp_path: Path) -> None:
    shop = demo_of_start(Settings(home=tmp_path, webhook_allow="10.0.0.0/8"), asked=None, is_new=True, taken=None)
    assert shop.variables == {
        "PLATFORM_SOURCE_DEMO_SHOP_URL": f"sqlite:///{tmp_path}/demo/shop.db",
        "PLATFORM_WEBHOOK_ALLOW": "10.0.0.0/8,127.0.0.2/32",
        # so that the shop's orders are one asset, and not one of arrivals beside one of lineage
        "PLATFORM_ARRIVALS_NAMESPACE": "shop/main",
    }
    assert shop.short_day is not None
    written = DemoState(DemoStatus.WRITTEN, BORN)
    write_state(tmp_path, written)
    again = demo_of_start(Settings(home=tmp_path), asked=False, is_new=False, taken=None)
    assert (again.wanted, list(again.variables)) == (False, list(shop.variables)), "its models still refer to the shop"
    assert demo_of_start(Settings(home=tmp_path), asked=None, is_new=False, taken=None).short_day is None


def test_without_a_demo_nothing_is_allowed(tmp_path: Path) -> None:
    assert demo_of_start(Settings(home=tmp_path, db_url=SERVER), asked=None, is_new=True, taken=None).variables == {}
    assert not list(tmp_path.iterdir())


def test_a_demo_that_failed_says_what_to_do(tmp_path: Path) -> None:
    write_state(tmp_path, DemoState(DemoStatus.BEGUN, BORN))
    stream = io.StringIO()
    offer_guide(Settings(home=tmp_path), Output(["demo"], stream), 1)
    assert "the platform goes on without it. `platform demo load` tries again" in stream.getvalue()


@pytest.mark.parametrize("settled", [True, False])
def test_lines_that_nobody_has_seen_to_be_true_say_so(tmp_path: Path, settled: bool) -> None:
    up = {"api": "http://127.0.0.1:8000", "ui": "http://127.0.0.1:3000", "demo_key": "k", "pids": {"api": os.getpid()}}
    (tmp_path / "up.json").write_text(json.dumps(up))
    write_state(tmp_path, DemoState(DemoStatus.WRITTEN, BORN, "run", settled))
    stream = io.StringIO()
    offer_guide(Settings(home=tmp_path), Output(["demo"], stream), 0)
    labels = [line.split()[0] for line in stream.getvalue().splitlines() if line]
    assert labels == ["The", *"12345", *([] if settled else ["note"])]
    assert ("have not ended yet" in stream.getvalue()) is not settled


def test_the_dashboard_is_not_waited_for_where_the_ui_shows_no_lineage(tmp_path: Path) -> None:
    assert shown_dashboard(Settings(home=tmp_path)) == ["lineage", "1", "dashboards", "boards.sales_overview"]
    for off in (Settings(lineage_observe=False), Settings(lineage_observe_off="1"), Settings(lineage_tables=0)):
        assert shown_dashboard(off) is None


def test_the_line_of_the_dashboard_has_an_address_only_where_the_ui_shows_it(tmp_path: Path) -> None:
    platform = RunningPlatform("http://127.0.0.1:8000", "http://127.0.0.1:3000", "key")
    state = DemoState(DemoStatus.WRITTEN, BORN, "run")
    shown = dict(guide_lines(platform, state, Settings(home=tmp_path), settled=True))["4 see"]
    assert "http://127.0.0.1:3000/assets/lineage/1/dashboards/boards.sales_overview?view=lineage" in shown
    for off in ({"lineage_observe": False}, {"lineage_observe_off": "1"}, {"lineage_tables": 0}):
        line = dict(guide_lines(platform, state, Settings(home=tmp_path, **off), settled=True))["4 see"]
        assert "http" not in line
        assert "platform lineage upstream boards.sales_overview --tenant 1`" in line
        assert line.endswith("platform webhooks deliveries")


def test_commands_for_another_terminal_name_what_must_be_set_there_and_no_password(tmp_path: Path) -> None:
    platform = RunningPlatform("http://127.0.0.1:8000", "http://127.0.0.1:3000", "key")
    state = DemoState(DemoStatus.WRITTEN, BORN, "run")
    for settings, expected in (
        (Settings(home=tmp_path), f"nothing of yours: PLATFORM_HOME={tmp_path} "),
        (
            Settings(home=tmp_path, db_url="mysql://me:secret@db/platform", graph_url="bolt://graph:7687"),
            "nothing of yours (with PLATFORM_DB_URL and PLATFORM_GRAPH_URL as for this start): PLATFORM_HOME=",
        ),
    ):
        lines = [text for _, text in guide_lines(platform, state, settings, settled=True)]
        assert expected in lines[4]
        assert lines[4].endswith("platform demo remove")
        assert "secret" not in str(lines)


def test_a_state_that_cannot_be_read_names_its_file(tmp_path: Path) -> None:
    write_state(tmp_path, DemoState(DemoStatus.BEGUN, BORN))
    path = tmp_path / "demo" / "state.json"
    path.write_text("{}")
    with pytest.raises(DemoError, match=str(path)):
        read_state(tmp_path)


def test_two_cannot_write_or_remove_it_at_a_time(tmp_path: Path) -> None:
    with exclusive(tmp_path), pytest.raises(DemoError, match="another process"), exclusive(tmp_path):
        pass
    with exclusive(tmp_path):
        pass


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/Los_Angeles", "Pacific/Kiritimati"])
@pytest.mark.parametrize("hour", [0, 12, 23])
def test_the_missing_table_is_due_soon_after_the_model_is_published(zone: str, hour: int) -> None:
    now = BORN.replace(hour=hour, minute=59, second=31)
    last = Calendar(now).last
    file = read_file(story.models_file(last, now, ZoneInfo(zone)).encode(), "models.yaml")
    due = {model.model_id: model.due for model in file.models}[story.RETURNED]
    at = (Due.parse(due or "") or pytest.fail("no due")).instant(last, ZoneInfo(zone))
    assert at is not None
    assert timedelta(seconds=59) < at - now < timedelta(minutes=2)


def test_what_the_demo_chains_say_of_themselves_is_true_also_after_they_were_mended() -> None:
    said = {name: chain["description"] for name, chain in story.chain_documents(Calendar(BORN).wrong).items()}
    assert "fails while order A-4711 has a wrong amount" in said[story.CLOSE]
    assert not any(claim in text for text in said.values() for claim in ("close_day failed", "the failed"))


def test_a_broken_order_is_in_one_batch_of_two_weeks() -> None:
    calendar = Calendar(BORN)
    assert len(calendar.op_times) == 14
    assert calendar.last == "20261116"
    assert calendar.wrong == "20261113"
