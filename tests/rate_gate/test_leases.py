"""Leases limit what is under way at once, over processes, and come back from a process that was killed."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.engine import URL

from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.leases import Lease
from platform_defs.store import migrate
from platform_defs.store.engine import read
from platform_defs.store.tables.rate_gate import rate_gate_lease
from tests.conftest import STORES
from tests.needs import ROOT
from tests.rate_gate.clocks import StillClock
from tests.rate_gate.patient import open_patient_gate_engine
from tests.waiting import PATIENCE_S, until


def gates(engine: Engine, clock: StillClock, count: int) -> list[RateGate]:
    return [RateGate(engine, clock=clock, now_us=clock.now_us) for _ in range(count)]


def take(gate: RateGate, limit: int, ttl_s: float = 60.0) -> Lease | None:
    return gate.leases.take("k", limit, ttl_s=ttl_s)


def test_no_more_than_the_limit_are_out_and_each_comes_back(engine: Engine) -> None:
    one, other = gates(engine, StillClock(), 2)
    first, second = take(one, 2), take(other, 2)
    assert first is not None
    assert second is not None
    assert (take(one, 2), take(other, 2)) == (None, None)
    one.leases.release(first)
    assert take(other, 2) is not None
    assert take(one, 2) is None


def test_a_thread_that_waits_for_a_lease_hears_when_another_thread_gives_it_back(engine: Engine) -> None:
    [gate] = gates(engine, StillClock(), 1)
    lease = take(gate, 1)
    assert lease is not None
    with gate.leases.waiting("k") as freed, gate.leases.waiting("another key") as other:
        assert take(gate, 1) is None
        assert not freed.is_set()
        gate.leases.release(lease)
        # set once the lease can be taken, so that nobody who hears it looks in vain
        assert freed.is_set()
        assert not other.is_set()
        assert take(gate, 1) is not None


def test_a_limit_may_grow_and_shrink(engine: Engine) -> None:
    one, other = gates(engine, StillClock(), 2)
    assert take(one, 1) is not None
    assert take(other, 1) is None
    assert take(other, 3) is not None
    last = take(one, 3)
    assert last is not None
    assert take(other, 3) is None
    one.leases.release(last)
    assert take(one, 2) is None


def test_a_lease_runs_out_and_a_late_release_takes_nothing_from_its_successor(engine: Engine) -> None:
    clock = StillClock()
    one, other, third = gates(engine, clock, 3)
    stale = take(one, 1, ttl_s=30)
    assert stale is not None
    clock.advance(29)
    assert take(other, 1) is None
    clock.advance(1)
    assert take(other, 1) is not None
    one.leases.release(stale)
    assert take(third, 1) is None


def test_a_lease_can_be_extended_while_its_slot_is_waited_for(engine: Engine) -> None:
    clock = StillClock()
    one, other = gates(engine, clock, 2)
    lease = take(one, 1, ttl_s=30)
    assert lease is not None
    one.leases.extend(lease, ttl_s=100)
    clock.advance(99)
    assert take(other, 1) is None


def test_threads_never_hold_more_than_the_limit(engine: Engine) -> None:
    clock = StillClock()
    lock, out, most = threading.Lock(), [0], [0]
    some = gates(engine, clock, 3)

    def work(gate: RateGate) -> None:
        for _ in range(10):
            lease = until("a lease", lambda: take(gate, 2))
            with lock:
                out[0] += 1
                most[0] = max(most[0], out[0])
            with lock:
                out[0] -= 1
            gate.leases.release(lease)

    threads = [threading.Thread(target=work, args=(gate,)) for gate in some * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (out, most[0] <= 2) == ([0], True)


# Leases that are taken for longer than a test lasts, and made short when they are extended: however long the holder
# needs for the second one, the first has not run out.
LONG_S = 3 * PATIENCE_S
HOLDER = f"""
import sys, threading
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.leases import LeaseKeeper
from tests.rate_gate.patient import open_patient_gate_engine
gate = RateGate(open_patient_gate_engine(sys.argv[1]))
keeper = LeaseKeeper(gate.leases, lease_s=4)
with keeper.kept(gate.leases.take("k", 2, ttl_s={LONG_S})):
    with keeper.kept(gate.leases.take("k", 2, ttl_s={LONG_S})):
        print("holds both", flush=True)
        threading.Event().wait()
"""


@pytest.mark.parametrize("database_url", STORES, indirect=True)
def test_leases_are_extended_while_their_process_lives_and_free_soon_after_it_was_killed(database_url: URL) -> None:
    engine = open_patient_gate_engine(database_url)
    migrate.upgrade(engine)
    gate = RateGate(engine)
    command = [sys.executable, "-c", HOLDER, database_url.render_as_string(hide_password=False)]
    holder = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds both\n"
        soon = (time.time() + PATIENCE_S) * 1e6
        until("both leases to be short", lambda: max(ends_of_leases(engine), default=soon) < soon)
        first = ends_of_leases(engine)
        until("both leases to be extended", lambda: all(map(int.__lt__, first, ends_of_leases(engine))))
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        for _ in range(2):
            until("the lease of the killed process to run out", lambda: gate.leases.take("k", 2, ttl_s=60))
        assert gate.leases.take("k", 2, ttl_s=60) is None
    finally:
        holder.kill()
        holder.communicate()
        engine.dispose()


def ends_of_leases(engine: Engine) -> list[int]:
    query = select(rate_gate_lease.c.leased_until_us).order_by(rate_gate_lease.c.slot_no)
    return list(read(engine, lambda connection: connection.execute(query).scalars().all()))
