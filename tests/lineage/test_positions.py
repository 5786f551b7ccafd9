"""Readers of new events go on after a clock was set back, and after retention has deleted the newest events."""

from datetime import timedelta

from sqlalchemy import Engine, delete, update

from platform_defs.lineage.new_events import SETTLED, newest_id
from platform_defs.lineage.observations import Position, observe
from platform_defs.lineage.sink.rows import raw_events
from platform_defs.lineage.tables.seen import newest_event, newest_tables, note_new_tables
from platform_defs.store.engine import has_one_writer, read, transact
from platform_defs.store.metadata import now
from platform_defs.store.tables.lineage import lineage_events
from tests.lineage.test_observations import TIME, store
from tests.lineage_events import run_event

BEFORE = TIME - timedelta(hours=2)


def test_events_that_were_stored_before_a_wrong_clock_was_set_back_are_read_at_once(engine: Engine) -> None:
    store(engine, [run_event()])
    assert observe(engine, Position(), without=set(), at=BEFORE).position == Position(newest_id(engine))
    assert note_new_tables(engine, at=BEFORE) == 1


def test_what_was_stored_a_moment_ago_waits_for_neighbours_that_commit_later_unless_there_can_be_none(
    engine: Engine,
) -> None:
    store(engine, [run_event()])
    soon, at_once = TIME + timedelta(seconds=1), has_one_writer(engine)
    assert bool(observe(engine, Position(), without=set(), at=soon).observations) is at_once
    assert note_new_tables(engine, at=soon) == (1 if at_once else 0)
    assert note_new_tables(engine, at=TIME + 2 * SETTLED) == (0 if at_once else 1)


def test_an_event_that_the_graph_lacks_since_before_a_clock_was_set_back_is_recovered(engine: Engine) -> None:
    store(engine, [run_event()], applied=False)
    later = update(lineage_events).values(created_at=now() + timedelta(hours=2))
    transact(engine, lambda connection: connection.execute(later))
    assert raw_events.count_unapplied(engine, before=now()) == 1
    assert [len(rows) for rows in raw_events.read_unapplied(engine, before=now())] == [1]


def test_tables_are_seen_again_after_all_events_were_deleted(engine: Engine) -> None:
    """SQLite then gives the same ids again."""
    store(engine, [run_event(job=f"job{number}", writes=("mart.old",)) for number in range(3)])
    assert note_new_tables(engine) == 3
    transact(engine, lambda connection: connection.execute(delete(lineage_events)))
    store(engine, [run_event(writes=("mart.new",)), run_event(writes=("mart.new",))])
    assert note_new_tables(engine) == 2
    assert read(engine, newest_event) == newest_id(engine)
    newest = read(engine, lambda connection: newest_tables(connection, 2, set()))
    assert "mart.new" in {table.name for table in newest}
