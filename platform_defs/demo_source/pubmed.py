"""NCBI's E-utilities as PubMed answers them in JSON: esearch lists ids by day, esummary describes them."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from platform_defs.demo_source.answers import Answer, json_answer
from platform_defs.demo_source.catalogue import Catalogue, Work
from platform_defs.demo_source.wording import Wording

ESEARCH = "/entrez/eutils/esearch.fcgi"
ESUMMARY = "/entrez/eutils/esummary.fcgi"
# How many records of one query can be paged through; the documentation says 10,000.
RESULT_CAP = 9999
# A longer GET is answered with 414.
LONGEST_URL = 4096
_UID_RANGE = re.compile(r"(\d+):(\d+)\[uid\]", re.IGNORECASE)
Params = Mapping[str, str]


def esearch(catalogue: Catalogue, params: Params, cap: int = RESULT_CAP) -> Answer:
    """Counts are texts, and a start beyond the cap is an error with status 200 whose text holds a line break."""
    start, size = _number(params.get("retstart"), 0), _number(params.get("retmax"), 20)
    if start > cap - 1:
        return _beyond_cap(cap)
    found = _matching(catalogue, params)
    result: dict[str, Any] = {
        "count": str(len(found)),
        "retmax": str(len(found[start:cap][:size])),
        "retstart": str(start),
        "idlist": [work.pmid for work in found[start:cap][:size]],
        "translationset": [],
        "querytranslation": params.get("term", ""),
    }
    if start + size > cap:
        message = f"Restrict retmax to {cap}: only the first {cap:,} records can be retrieved."
        result["warninglist"] = {"phrasesignored": [], "quotedphrasesnotfound": [], "outputmessages": [message]}
    return json_answer({"header": {"type": "esearch", "version": "0.3"}, "esearchresult": result})


def esummary(catalogue: Catalogue, params: Params) -> Answer:
    """A record that is not there has an error in its place; an id that is none refuses the whole request."""
    header = {"type": "esummary", "version": "0.3"}
    ids = [each.strip() for each in params.get("id", "").split(",") if each.strip()]
    if not ids:
        return json_answer({"header": header, "error": "Empty id list - nothing todo"})
    for place, each in enumerate(ids):
        if not each.isdecimal():
            return json_answer({"header": header, "esummaryresult": [f"Invalid uid {each} at position= {place}"]}, 400)
    result: dict[str, Any] = {"uids": ids}
    for each in ids:
        work = catalogue.by_pmid(each)
        gone = {"uid": each, "error": "cannot get document summary"}
        result[each] = gone if work is None else summary(work)
    return json_answer({"header": header, "result": result})


def rate_limited(limit: int) -> Answer:
    document = {
        "error": "API rate limit exceeded",
        "api-key": "127.0.0.1",
        "count": str(limit + 1),
        "limit": str(limit),
    }
    headers = {"X-RateLimit-Limit": str(limit), "X-RateLimit-Remaining": "0"}
    return json_answer(document, 429, headers)


def url_too_long() -> Answer:
    body = b"<html><head><title>414 Request-URI Too Large</title></head><body></body></html>\n"
    return Answer(414, body, "text/html")


def summary(work: Work) -> dict[str, Any]:
    wording = Wording(work.number)
    day = work.created.strftime("%Y %b %d")
    return {
        "uid": work.pmid,
        "pubdate": day,
        "epubdate": day,
        "source": wording.journal.replace("Journal", "J"),
        "authors": [
            {"name": f"{family} {given[0]}", "authtype": "Author", "clusterid": ""} for given, family in wording.authors
        ],
        "lastauthor": "{1} {0[0]}".format(*wording.authors[-1]),
        "title": f"{wording.title}.",
        "sorttitle": wording.title.lower(),
        "volume": wording.volume,
        "issue": wording.issue,
        "pages": f"{wording.first_page}-{wording.first_page + 9}",
        "lang": ["eng"],
        "nlmuniqueid": "101674571",
        "issn": "2379-5042",
        "essn": "",
        "pubtype": ["Journal Article"],
        "recordstatus": "PubMed - as supplied by publisher",
        "pubstatus": "10",
        "articleids": [
            {"idtype": "pubmed", "idtypen": 1, "value": work.pmid},
            {"idtype": "doi", "idtypen": 3, "value": work.doi},
        ],
        "history": [{"pubstatus": "entrez", "date": work.created.strftime("%Y/%m/%d %H:%M")}],
        "references": [],
        "attributes": ["Has Abstract"],
        "pmcrefcount": wording.cited_by,
        "fulljournalname": wording.journal,
        "elocationid": f"doi: {work.doi}",
        "doctype": "citation",
        "sortpubdate": work.created.strftime("%Y/%m/%d 00:00"),
        "sortfirstauthor": "{1} {0[0]}".format(*wording.authors[0]),
    }


def _matching(catalogue: Catalogue, params: Params) -> list[Work]:
    """Newest first. A kind of date that is not known finds nothing, and no error says so."""
    dates: dict[str, Callable[[datetime, datetime], list[Work]]] = {
        "mdat": catalogue.changed_between,
        "edat": catalogue.created_between,
        "crdt": catalogue.created_between,
        "pdat": catalogue.created_between,
    }
    first, last = _day(params.get("mindate"), datetime(1900, 1, 1, tzinfo=UTC)), _day(params.get("maxdate"), None)
    search = dates.get(params.get("datetype", "pdat"))
    if search is None or first is None:
        return []
    # both days are included
    until = datetime(9999, 1, 1, tzinfo=UTC) if last is None else last + timedelta(days=1)
    found = search(first, until)
    if ids := _UID_RANGE.search(params.get("term", "")):
        low, high = int(ids[1]), int(ids[2])
        found = [work for work in found if low <= int(work.pmid) <= high]
    return found[::-1]


def _beyond_cap(cap: int) -> Answer:
    """Byte for byte as NCBI writes it: no JSON writer would let the line break pass."""
    message = (
        f"Search Backend failed: Exception:\n'retstart' cannot be larger than {cap - 1}. For PubMed, ESearch can only"
        f" retrieve the first {cap:,} records matching the query. To obtain more than {cap:,} PubMed records, consider"
        " using EDirect that contains additional logic to batch PubMed search results automatically"
    )
    body = '{"header":{"type":"esearch","version":"0.3"},"esearchresult":{"ERROR":"' + message + '"}}'
    return Answer(200, body.encode())


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default


def _day(text: str | None, default: datetime | None) -> datetime | None:
    for form in ("%Y/%m/%d", "%Y/%m", "%Y"):
        try:
            return datetime.strptime(text or "", form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return default
