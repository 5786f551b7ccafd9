"""The bundled presets: they compile, ask as the real APIs want to be asked, and read what those really answered."""

import csv
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from platform_defs.ingest.codes import Operation, PaginationType, RepeatedToken
from platform_defs.ingest.fetching.reading import Record, ResponseReader
from platform_defs.ingest.registry.presets import preset_names, read_preset
from platform_defs.ingest.spec.compiler import compile_all, compile_spec
from platform_defs.ingest.spec.model import CallSpec, Spec
from platform_defs.ingest.spec.snapshot import mapping_hash, spec_as_json, spec_from_json
from platform_defs.ingest.transport.requests import CompiledCall
from tests.ingest.registry.making import NOW, rows_of
from tests.needs import require

ENDPOINTS = {"pubmed": "search", "crossref": "works", "openalex": "works", "europepmc": "search"}
DAY = datetime(2026, 2, 28, tzinfo=UTC)


def preset(name: str, operation: Operation = Operation.HARVEST) -> Spec:
    rows = rows_of(read_preset(name).decode())
    return compile_spec(rows, name, ENDPOINTS[name], operation, now=NOW).spec


def search_request(
    spec: Spec, *, offset: int = 0, token: str | None = None, ids: tuple[int, int] | None = None
) -> httpx.Request:
    """The request of a page of one day, with the names that the executor gives to templates."""
    assert spec.search is not None
    end = DAY + timedelta(days=1)
    until = end - spec.window.granularity if spec.window.filter_is_inclusive else end
    names: Mapping[str, Any] = {
        "window": {"from": DAY, "to": end, "until": until},
        "page": {"number": 1, "page": 1, "offset": offset, "size": spec.pagination.page_size, "token": token},
        "sort": {"by": None, "direction": None},
        "idRange": None if ids is None else {"from": ids[0], "to": ids[1]},
    }
    return CompiledCall.of(spec.search, spec).request(names, NOW)


def ids_request(spec: Spec, *ids: str) -> httpx.Request:
    assert spec.detail is not None
    plain = [each.partition(":")[2] if spec.detail.response.id_prefix_path else each for each in ids]
    names = {"ids": list(ids), "idsText": spec.batching.ids_join.join(plain)}
    return CompiledCall.of(spec.detail, spec).request(names, NOW)


def asked(request: httpx.Request) -> tuple[str, dict[str, str]]:
    return str(request.url.copy_with(query=None)), dict(request.url.params)


def test_every_preset_is_here() -> None:
    assert set(preset_names()) == set(ENDPOINTS)


@pytest.mark.parametrize("name", ENDPOINTS)
def test_a_preset_compiles_for_every_operation(name: str) -> None:
    (found,) = compile_all(rows_of(read_preset(name).decode()), NOW)
    assert (found.provenance_code, found.endpoint_name) == (name, ENDPOINTS[name])
    assert set(found.specs) == set(Operation), found.problems
    for compiled in found.specs.values():
        assert spec_from_json(spec_as_json(compiled.spec)) == compiled.spec
        assert compiled.spec.window.size == timedelta(days=1)
    assert len({mapping_hash(compiled.spec) for compiled in found.specs.values()}) == 1


def test_pubmed_lists_ids_by_days_of_change_and_asks_for_summaries() -> None:
    spec = preset("pubmed")
    assert asked(search_request(spec, offset=400)) == (
        "https://eutils.ncbi.nlm.nih.gov/entrez/eutils/esearch.fcgi",
        {
            "db": "pubmed",
            "retmode": "json",
            "tool": "platform-defs",
            "retstart": "400",
            "retmax": "400",
            "datetype": "mdat",
            "mindate": "2026/02/28",
            "maxdate": "2026/02/28",
            "term": "all[sb]",
        },
    )
    assert asked(search_request(spec, ids=(1, 5000)))[1]["term"] == "1:5000[uid]"
    assert (spec.two_phase, spec.pagination.result_cap, spec.id_range) == (True, 9999, (1, 99_999_999))
    assert spec.id_range_param is not None
    assert spec.search is not None
    assert spec.id_range_param in spec.search.params
    assert asked(ids_request(spec, "17", "18")) == (
        "https://eutils.ncbi.nlm.nih.gov/entrez/eutils/esummary.fcgi",
        {"db": "pubmed", "retmode": "json", "tool": "platform-defs", "id": "17,18"},
    )
    many = ids_request(spec, *(str(40_000_000 + number) for number in range(200)))
    assert (many.method, many.url.query) == ("POST", b"")
    assert dict(parse_qsl(many.content.decode()))["id"].count(",") == 199


def test_every_page_of_pubmed_begins_where_the_source_still_answers() -> None:
    page = preset("pubmed").pagination
    assert page.page_size is not None
    assert page.result_cap is not None
    last = (page.result_cap - 1) // page.page_size * page.page_size
    assert last <= 9998, "retstart above 9998 is an error"
    assert page.result_cap % page.page_size, (
        "the last page of the largest query is not full, so it is known as the last"
    )


def test_crossref_is_filtered_by_the_day_of_indexing() -> None:
    spec = preset("crossref")
    assert asked(search_request(spec, token="*")) == (
        "https://api.crossref.org/works",
        {"cursor": "*", "rows": "500", "filter": "from-index-date:2026-02-28,until-index-date:2026-02-28"},
    )
    assert (spec.pagination.type, spec.pagination.repeated_token) == (PaginationType.TOKEN, RepeatedToken.CONTINUES)
    assert spec.pagination.token_ttl == timedelta(minutes=5)
    assert asked(ids_request(spec, "10.1000/a", "10.1000/b")) == (
        "https://api.crossref.org/works",
        {"filter": "doi:10.1000/a,doi:10.1000/b", "rows": "100"},
    )


def test_crossref_has_a_polite_pool_for_those_who_give_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (preset("crossref").rate.refill_per_s, preset("crossref").rate.max_concurrent) == (1.0, 1)
    monkeypatch.setenv("CROSSREF_MAILTO", "someone@example.org")
    spec = preset("crossref")
    assert (spec.rate.refill_per_s, spec.rate.max_concurrent, spec.auth.field_name) == (3.0, 3, "mailto")


def test_openalex_is_filtered_by_the_time_of_update() -> None:
    spec = preset("openalex")
    assert asked(search_request(spec, token="*")) == (
        "https://api.openalex.org/works",
        {
            "cursor": "*",
            "per-page": "100",
            "filter": "from_updated_date:2026-02-28T00:00:00,to_updated_date:2026-03-01T00:00:00",
        },
    )
    assert (spec.auth.required, spec.auth.field_name) == (True, "api_key")
    assert asked(ids_request(spec, "https://openalex.org/W1", "https://openalex.org/W2"))[1] == {
        "filter": "openalex:https://openalex.org/W1|https://openalex.org/W2",
        "per-page": "100",
    }


def test_europe_pmc_is_queried_by_the_day_of_update() -> None:
    spec = preset("europepmc")
    assert asked(search_request(spec, token="*")) == (
        "https://www.ebi.ac.uk/europepmc/webservices/rest/search",
        {
            "format": "json",
            "resultType": "lite",
            "cursorMark": "*",
            "pageSize": "500",
            "query": "UPDATE_DATE:[2026-02-28 TO 2026-02-28]",
        },
    )
    assert spec.pagination.repeated_token is RepeatedToken.ENDS
    assert asked(ids_request(spec, "MED:17", "PMC:18"))[1]["query"] == "EXT_ID:17 OR EXT_ID:18"


def recorded(path: str) -> Any:
    return json.loads(Path(require("data"), "responses", path).read_bytes())


def read_all(call: CallSpec | None, spec: Spec, document: Any) -> list[Record]:
    assert call is not None
    reader = ResponseReader(call, spec.pagination if call is spec.search else None, spec.output_fields)
    read = [reader.record(item) for item in reader.items(document)]
    records = [each for each in read if isinstance(each, Record)]
    assert len(records) == len(read), read
    return records


@pytest.mark.needs("data")
def test_presets_read_what_the_sources_really_answered() -> None:
    crossref = preset("crossref")
    pages = "sckott+habanero/test__cassettes__test-cursor__test_cursor_max"
    for number in range(3):
        document = recorded(f"{pages}.{number:03}.json")
        records = read_all(crossref.search, crossref, document)
        assert len(records) == 20
        assert all(record.updated_at is not None for record in records)
        assert [record.provider_id for record in records] == [
            item["DOI"].lower() for item in document["message"]["items"]
        ]
    europepmc = preset("europepmc")
    records = read_all(
        europepmc.search, europepmc, recorded("JonasHeinickeBio+pyEuropePMC/tests__fixtures__search_cancer.json")
    )
    assert (len(records), records[0].provider_id) == (25, "MED:39709209")
    openalex = preset("openalex")
    (work,) = read_all(
        openalex.search,
        openalex,
        recorded("Future-House+paper-qa/tests__cassettes__test_title_search_paper_attributes1_.002.json"),
    )
    assert work.provider_id == "https://openalex.org/W4389761608"
    assert work.updated_at == datetime(2025, 8, 31, 13, 24, 50, 25567, tzinfo=UTC)
    pubmed = preset("pubmed")
    summaries = recorded("ropensci+fulltext/tests__fixtures__ft_search_entrez.001.json")
    records = read_all(pubmed.detail, pubmed, summaries)
    assert [record.provider_id for record in records] == summaries["result"]["uids"]


@pytest.mark.needs("data")
def test_esummary_has_no_time_of_modification() -> None:
    """Why a PubMed record's time is the day that listed it."""
    summaries = recorded("ropensci+fulltext/tests__fixtures__ft_search_entrez.001.json")["result"]
    fields = {name for uid in summaries["uids"] for name in summaries[uid]}
    assert not [name for name in fields if "mod" in name or "upd" in name or "mdat" in name], fields


@pytest.mark.needs("data")
@pytest.mark.parametrize(
    ("name", "source", "path"),
    [
        ("pubmed", "ncbi-eutils", "/entrez/eutils/esummary.fcgi"),
        ("crossref", "crossref", "/works"),
        ("openalex", "openalex", "/works"),
    ],
)
def test_presets_ask_where_recorded_clients_asked(name: str, source: str, path: str) -> None:
    with Path(require("data"), "responses", "INDEX.tsv").open(encoding="utf-8") as index:
        urls = [row["url"] for row in csv.DictReader(index, delimiter="\t") if row["source_api"] == source]
    known = [urlsplit(url) for url in urls if urlsplit(url).path == path]
    names = {key for url in known for key, _ in parse_qsl(url.query)}
    spec = preset(name)
    request = ids_request(spec, "17") if name == "pubmed" else search_request(spec, token="*")
    assert (request.url.host, request.url.path) in {(url.hostname, url.path) for url in known}
    shared = {"pubmed": {"db", "retmode", "id"}, "crossref": {"filter", "rows", "cursor"}, "openalex": {"filter"}}
    assert shared[name] <= names & set(request.url.params)
