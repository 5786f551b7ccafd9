"""Benchmark of the lineage sink: rate, latency and CPU on real events, gain of group commit, cost of a million rows.

Run it as `python -m bench.lineage [--seconds 8] [--wide-seconds 60] [--rows 1000000] [embedded] [servers]`. Load
generator, API and servers share this machine, so the numbers contain all of them. The load is the corpus of real
events: all of them, shuffled, again and again, made unique by run id and time. "Repeating" events come from a few jobs
whose runs say the same again, as in production. Each place takes about six minutes as the options stand.

With `--marquez URL` a Marquez that runs on this machine gets the same load first, and is what we are compared with;
otherwise it is what was measured on another machine.
"""

import argparse
import os
from collections.abc import Sequence

from bench.cpu_times import WHAT_COUNTS, CpuTimes, Neighbours
from bench.lineage_aims import (
    CPU_MS,
    GROUP_COMMIT,
    MARQUEZ_ELSEWHERE,
    MEMORY_MB,
    OF_NOTHING_WRITTEN,
    P99_OF_MARQUEZ_P50,
    TIMES_MARQUEZ,
    TIMES_MARQUEZ_REPEATING,
    TWO_PROCESSES,
    WITH_MANY_ROWS,
    Aim,
)
from bench.lineage_load import CLIENTS, Load, Measured, corpus, measure, warm_up
from bench.lineage_places import TENANTS, Place, embedded, servers, serving
from bench.lineage_rows import fill
from bench.lineage_wide import report_wide
from tests.e2e.serving import Serving

MEGABYTE = 1000 * 1000


def show(clients: int, what: str, found: Measured) -> None:
    print(f"  {clients:3} clients, {what}")
    print(f"                           {found}")
    if found.cpu is not None:
        print(f"                           {found.cpu}   (load generator {found.load_ms:.2f} ms)")


def compare(found: Measured, marquez: Measured, times: Aim | None) -> None:
    """With what a Marquez took with 64 clients, and with the aims for such a load."""
    ratio = found.rate / marquez.rate
    print(times.line("rate / Marquez", ratio) if times else f"    {'rate / Marquez':<38} {ratio:8.2f}")
    print(P99_OF_MARQUEZ_P50.line("p99 / p50 of Marquez", found.p99_ms / marquez.p50_ms))
    if found.cpu is not None:
        print(CPU_MS.line("ms of CPU per event, in all", found.cpu.all_ms))


def one_process(api: Serving, place: Place, load: Load, seconds: float, marquez: Measured) -> Measured:
    cpu = CpuTimes([api], place.ports)
    if cpu.not_counted:
        print(f"  not counted, because its process cannot be seen from here: {', '.join(cpu.not_counted)}")
    for clients in CLIENTS:
        found = measure(api.url, place.key, load, clients, seconds, cpu=cpu)
        show(clients, "one process", found)
    compare(found, marquez, TIMES_MARQUEZ)
    return found


def two_processes(apis: Sequence[Serving], place: Place, load: Load, seconds: float, marquez: Measured) -> None:
    """Each beside one process directly before and after, because the machine is not the same all the time."""
    cpu = CpuTimes(apis, place.ports)
    both = [api.url for api in apis]
    repeating = Load(corpus(), repeating=True)
    # the events of one tenant are merged one group after the other, whichever process has them
    every_key = (place.key, *place.other_keys)
    for clients, name, some, keys, times in (
        *((clients, "two processes", load, place.key, None) for clients in CLIENTS),
        (64, "two processes, repeating events", repeating, place.key, TIMES_MARQUEZ_REPEATING),
        (64, f"two processes, {TENANTS} tenants", load, every_key, None),
    ):
        before = measure(both[0], keys, some, clients, seconds / 2).rate
        two = measure(both, keys, some, clients, seconds, cpu=cpu)
        one = (before + measure(both[0], keys, some, clients, seconds / 2).rate) / 2
        show(clients, name, two)
        print(TWO_PROCESSES.line(f"rate / one process ({one:.0f} events/s)", two.rate / one))
        if clients == max(CLIENTS):
            compare(two, marquez, times)


def report(name: str, place: Place, seconds: float, wide_seconds: float, rows: int, marquez: Measured) -> None:
    print(f"\n{name}")
    neighbours, load = Neighbours(), Load(corpus())
    with serving(place.env) as api:
        warm_up(api.url, place.key, load)
        found = one_process(api, place, load, seconds, marquez)
        with serving(place.env) as second:
            two_processes([api, second], place, load, seconds, marquez)
        report_wide(api, place, seconds, wide_seconds)
        print(MEMORY_MB.line("MB of memory of the API at its peak", api.peak_memory() / MEGABYTE))
    with serving(place.env, group_events="1", linger_ms="0") as api:
        single = measure(api.url, place.key, load, 64, seconds)
        show(64, "a commit per event", single)
    with serving(place.env, code="from bench.lineage_places import serve_nothing; serve_nothing()") as api:
        nothing = measure(api.url, place.key, load, 64, seconds)
        show(64, "nothing written", nothing)
    # the two aims are each for one of the places, as the issue of the sink names them
    if place.ports:
        print(GROUP_COMMIT.line("group commit / a commit per event", found.rate / single.rate))
        print(f"    {'sink / a handler that writes nothing':<38} {found.rate / nothing.rate:8.2f}")
    else:
        print(f"    {'group commit / a commit per event':<38} {found.rate / single.rate:8.2f}")
        print(OF_NOTHING_WRITTEN.line("sink / a handler that writes nothing", found.rate / nothing.rate))
    if rows:
        fill(place, rows)
        with serving(place.env) as api:
            full = measure(api.url, place.key, load, 64, seconds)
        show(64, f"{rows:,} rows", full)
        print(WITH_MANY_ROWS.line(f"with {rows:,} rows / on empty tables", full.rate / found.rate))
    print(f"  {neighbours.shown()}")


def measure_marquez(url: str, seconds: float) -> Measured:
    """What a Marquez takes of the same events; it asks for no key."""
    load = Load(corpus(), path="/api/v1/lineage")
    warm_up(url, "none", load)
    found = measure(url, "none", load, 64, seconds)
    show(64, "Marquez", found)
    return found


def main() -> None:
    places = {"embedded": embedded, "servers": servers}
    names = {"embedded": "embedded (SQLite)", "servers": "MySQL + Neo4j"}
    parser = argparse.ArgumentParser(description="What the lineage sink takes.")
    parser.add_argument("places", nargs="*", choices=[*places, []], help="default: both")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--wide-seconds", type=float, default=60.0, help="how long each load of wide events is posted")
    parser.add_argument("--rows", type=int, default=1_000_000, help="bulk-loaded; 0 leaves that measurement out")
    parser.add_argument("--marquez", metavar="URL", help="of a Marquez on this machine, to measure it in this run")
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} processors for load generator, API and servers together; {len(corpus())} real events")
    print(WHAT_COUNTS)
    here = measure_marquez(arguments.marquez, arguments.seconds) if arguments.marquez else MARQUEZ_ELSEWHERE
    for name in arguments.places or places:
        with places[name]() as place:
            report(names[name], place, arguments.seconds, arguments.wide_seconds, arguments.rows, here)


if __name__ == "__main__":
    main()
