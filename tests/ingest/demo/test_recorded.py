"""Every recorded answer of the real sources is parsed, set aside or refused with a reason; none crashes the reader."""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine

from platform_defs.ingest.codes import Operation
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.fetching.reading import Record, Rejection, ResponseReader
from platform_defs.ingest.registry.file import read_file
from platform_defs.ingest.registry.loading import load
from platform_defs.ingest.registry.presets import read_preset
from platform_defs.ingest.spec.compiler import compile_spec
from platform_defs.ingest.spec.model import CallSpec, Spec
from platform_defs.ingest.transport.http_source import read_document
from tests.needs import require

NOW = datetime(2026, 11, 17, tzinfo=UTC)
# the recordings' word for a source -> preset, endpoint
SOURCES = {
    "crossref": ("crossref", "works"),
    "ncbi-eutils": ("pubmed", "search"),
    "europepmc": ("europepmc", "search"),
    "openalex": ("openalex", "works"),
}

pytestmark = [pytest.mark.needs("data"), pytest.mark.parametrize("engine", ["sqlite"], indirect=True)]


@dataclass(frozen=True)
class Recording:
    file: Path
    status: int

    def response(self) -> httpx.Response:
        return httpx.Response(self.status, content=self.file.read_bytes())


def recordings(source: str) -> Iterator[Recording]:
    folder = Path(require("data")) / "responses"
    with (folder / "INDEX.tsv").open(newline="") as index:
        for row in csv.DictReader(index, delimiter="\t"):
            if row["source_api"] == source and (folder / row["file"]).exists():
                yield Recording(folder / row["file"], int(row["status"] or 200))


def compiled(engine: Engine, source: str) -> Spec:
    preset, endpoint = SOURCES[source]
    load(engine, read_file(read_preset(preset), preset), now=NOW)
    return compile_spec(engine, preset, endpoint, Operation.HARVEST, now=NOW).spec


def read_answer(spec: Spec, call: CallSpec, recording: Recording) -> Sequence[Record | Rejection] | ResponseError:
    reader = ResponseReader(call, spec.pagination, spec.output_fields)
    try:
        document = read_document(call, recording.response())
        items = reader.items(document)
        read = [reader.record(item) for item in items]
        reader.facts(document, items, [each for each in read if isinstance(each, Record)])
    except ResponseError as error:
        return error
    return read


@pytest.mark.parametrize("source", SOURCES)
def test_each_recorded_answer_is_read_set_aside_or_refused_with_a_reason(engine: Engine, source: str) -> None:
    spec = compiled(engine, source)
    outcomes: Counter[str] = Counter()
    for recording in recordings(source):
        for call in filter(None, (spec.search, spec.detail)):
            answer = read_answer(spec, call, recording)
            if isinstance(answer, ResponseError):
                assert answer.code, recording.file
                assert str(answer), recording.file
                outcomes["refused"] += 1
                continue
            for each in answer:
                if isinstance(each, Rejection):
                    assert each.reason, recording.file
                    assert each.reason_code, recording.file
                    outcomes["set aside"] += 1
                else:
                    assert each.provider_id, recording.file
                    assert json.dumps(each.document, default=str), recording.file
                    outcomes["read"] += 1
    assert outcomes["refused"] > 0
    # NCBI's recordings are XML and a summary of another of its databases
    assert outcomes["read"] > (0 if source != "crossref" else 1000), outcomes
