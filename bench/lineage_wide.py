"""What a tenant notices while another one posts wide events: the same again and again, or other columns in each."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from bench.lineage_aims import BESIDE_WIDE
from bench.lineage_load import Beside, Clock, Load, corpus, measure, request
from bench.lineage_places import Place
from tests.e2e.serving import Serving

CLIENTS, WIDE_CLIENTS, JOBS = 16, 4, 10
COLUMNS, INPUTS = 300, 40
# of how many of the inputs each column of an event in the form `fields[]` is made
SOURCES = 10
# What is put in their place has the same length, so that a body is made by replacing, without JSON: building a wide
# event costs the load generator, which has no processor of its own, more than posting it.
TIME, RUN, GENERATION = "@" * 32, "#" * 36, "~" * 8


class WideLoad:
    """Jobs whose output has many columns.

    In the form `dataset[]` all of them depend on all inputs, by a join or a filter; in the form `fields[]` each of them
    is made of some inputs. changing: every event has columns of other names than the job's event before, and the jobs
    use both forms; else every event says what the job has said before.
    """

    def __init__(self, *, changing: bool) -> None:
        self._changing = changing
        forms = ("dataset", "fields") if changing else ("dataset",)
        self._bodies = [_body(job, forms[job % len(forms)]) for job in range(JOBS)]
        self._clock = Clock()
        self._generation = 0

    def stream(self, host: str, keys: str | Sequence[str]) -> Iterator[bytes]:
        in_turn = cycle([keys] if isinstance(keys, str) else keys)
        for body in cycle(self._bodies):
            self._generation += self._changing
            parts = {TIME: self._clock.time(), RUN: self._clock.run(), GENERATION: f"{self._generation:08}"}
            for place, value in parts.items():
                assert len(value) == len(place)
                body = body.replace(place.encode(), value.encode())
            yield request("/api/openlineage", host, next(in_turn), body)


def _body(job: int, form: str) -> bytes:
    names = [f"c{GENERATION}{number}" for number in range(COLUMNS)]
    sources = [{"namespace": "wide", "name": f"s.in{number}", "field": "k"} for number in range(INPUTS)]
    if form == "dataset":
        lineage: dict[str, Any] = {"fields": {name: {"inputFields": sources[:1]} for name in names}, "dataset": sources}
    else:
        some = [sources[number:] + sources[:number] for number in range(INPUTS)]
        lineage = {"fields": {name: {"inputFields": some[at % INPUTS][:SOURCES]} for at, name in enumerate(names)}}
    schema = {"fields": [{"name": name, "type": "int"} for name in names]}
    event = {
        "eventType": "COMPLETE",
        "eventTime": TIME,
        "producer": "bench",
        "run": {"runId": RUN},
        "job": {"namespace": "wide", "name": f"job{job}"},
        "inputs": [{"namespace": "wide", "name": source["name"]} for source in sources],
        "outputs": [
            {"namespace": "wide", "name": f"s.out{job}", "facets": {"schema": schema, "columnLineage": lineage}}
        ],
    }
    return json.dumps(event).encode()


def report_wide(api: Serving, place: Place, seconds: float, wide_seconds: float) -> None:
    """seconds: of the measurements without wide events; wide_seconds: how long each load of wide events is posted."""
    load = Load(corpus())
    calm = measure(api.url, place.key, load, CLIENTS, seconds)
    print(f"  another tenant: {CLIENTS} clients alone")
    print(f"                           {calm}")
    for name, changing in (("the same again and again, dataset[]", False), ("other columns in each, both forms", True)):
        beside = Beside(WideLoad(changing=changing), place.other_keys[0], WIDE_CLIENTS)
        busy = measure(api.url, place.key, load, CLIENTS, wide_seconds, beside=beside)
        print(f"  beside {WIDE_CLIENTS} clients with wide events for {wide_seconds:g} s: {name}")
        print(f"                           {busy}")
        print(BESIDE_WIDE.line("p99 / alone", busy.p99_ms / calm.p99_ms))
        wide_ms = 1000 * sum(beside.times) / max(len(beside.times), 1)
        refused = f", {len(beside.failed)} not 201" if beside.failed else ""
        print(f"    the wide events        {len(beside.times) / wide_seconds:8.1f}/s   mean {wide_ms:6.0f} ms{refused}")
    with burning():
        burnt = measure(api.url, place.key, load, CLIENTS, seconds)
    print("  beside a process that keeps a processor busy")
    print(f"                           {burnt}")
    print(f"    {'p99 / alone':<38} {burnt.p99_ms / calm.p99_ms:8.2f}   (what competition for processors alone costs)")


@contextmanager
def burning() -> Iterator[None]:
    """A process that keeps one processor busy, as the merging of wide events and its stores do."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()
