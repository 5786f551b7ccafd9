"""The runners on /metrics. Each runner writes its counters into its own row, so the API needs no connection to it."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from sqlalchemy import Engine

from platform_defs.settings import Settings
from platform_defs.stuck import find_stuck
from platform_defs.work import rows, runners


class RunnerCollector(Collector):
    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings

    def collect(self) -> Iterator[Metric]:
        alive = runners.living_runners(self._engine, attempts=1)
        queued = rows.count_open_rows(self._engine, attempts=1)[rows.Status.QUEUED]
        yield GaugeMetricFamily("platform_runner_queued", "Rows of work that wait for a slot", value=queued)
        stuck = GaugeMetricFamily(
            "platform_stuck",
            "Rows of work, waiting rows, runners, sensors and tasks that do not move on",
            labels=["kind"],
        )
        counts = Counter(one.kind for one in find_stuck(self._engine, self._settings, attempts=1))
        for kind in ("row", "queue", "runner", "sensor", "task"):
            stuck.add_metric([kind], counts[kind])
        yield stuck
        merged: dict[str, Metric] = {}
        for runner in alive:
            for family in text_string_to_metric_families(runner.metrics or ""):
                known = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    labels = sample.labels | {"runner": f"{runner.hostname}:{runner.process.pid}"}
                    known.add_sample(sample.name, labels, sample.value)
        yield from merged.values()
