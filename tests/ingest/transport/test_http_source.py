"""Requests leave as the spec says, with their credential and nothing else, and every answer is graded."""

import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, update

from platform_defs.http_door.door import Door
from platform_defs.ingest.codes import AuthType, ErrorLevel, Location, PaginationType
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.execution.progress import EXPIRED_TOKEN
from platform_defs.ingest.fetching.source import Fetched
from platform_defs.ingest.spec.model import AuthSpec, RequestParam, Spec
from platform_defs.ingest.transport import credentials
from platform_defs.ingest.transport.http_source import HttpSource, rate_key
from platform_defs.rate_gate.gate import RateGate
from platform_defs.store.engine import transact
from platform_defs.store.tables.registry import reg_prov_credential
from tests.ingest.specs import paged_spec

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WINDOW = {"from": NOW, "to": datetime(2026, 3, 2, tzinfo=UTC), "until": NOW}
PAGE = {"offset": 20, "size": 10, "page": 3, "number": 3, "token": None}
NAMES = {"window": WINDOW, "page": PAGE, "idRange": None}
GOOD = {"items": [{"id": "1", "updated": "2026-03-01T01:00:00Z"}], "total": 1}
Answer = Callable[[httpx.Request], httpx.Response]


def quick(spec: Spec) -> Spec:
    """As fast as a test wants to be."""
    return replace(
        spec,
        rate=replace(spec.rate, refill_per_s=1000.0, burst=100),
        retry=replace(spec.retry, initial_delay_ms=1, max_delay_ms=2, max_attempts=3),
    )


@contextmanager
def opened(spec: Spec, engine: Engine, answer: Answer) -> Iterator[HttpSource]:
    with Door(RateGate(engine), transport=httpx.MockTransport(answer)) as door:
        yield HttpSource(quick(spec), door, engine, now=lambda: NOW)


def fetch(source: HttpSource, **more: Any) -> Fetched:
    spec: Spec = source.spec
    assert spec.search is not None
    return source.fetch(spec.search, {**NAMES, **more.pop("names", {})}, cancel=threading.Event(), **more)


def refused(spec: Spec, engine: Engine, answer: Answer, **more: Any) -> ResponseError:
    with opened(spec, engine, answer) as source, pytest.raises(ResponseError) as caught:
        fetch(source, **more)
    return caught.value


def test_a_page_is_asked_for_as_the_templates_say_and_its_evidence_kept(engine: Engine) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=GOOD)

    with opened(paged_spec(), engine, answer) as source:
        fetched = fetch(source)
    assert fetched.document == GOOD
    assert (seen[0].url.path, seen[0].url.params["offset"], seen[0].url.params["limit"]) == ("/items", "20", "10")
    assert seen[0].url.params["from"].startswith("2026-03-01T00:00:00")
    assert fetched.request_digest["method"] == "GET"
    assert fetched.response_digest["rate"]["limitKey"] == "ingest:made_up:items"
    assert fetched.counts["429Count"] == 0


def test_a_mirrors_prefix_stands_before_the_endpoints_path(engine: Engine) -> None:
    paths: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        return httpx.Response(200, json=GOOD)

    with opened(paged_spec("https://mirror.test/proxy/"), engine, answer) as source:
        fetch(source)
    assert paths == ["/proxy/items"]


@pytest.mark.parametrize("compress", [True, False])
def test_a_source_that_must_not_compress_is_not_asked_to(engine: Engine, compress: bool) -> None:
    accepted: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        accepted.append(request.headers["Accept-Encoding"])
        return httpx.Response(200, json=GOOD)

    spec = paged_spec()
    assert spec.search is not None
    search = replace(spec.search, http=replace(spec.search.http, compress=compress))
    with opened(replace(spec, search=search), engine, answer) as source:
        fetch(source)
        fetch(source, url="https://source.test/items?page=2")
    assert [("gzip" in each, each == "identity") for each in accepted] == [(compress, not compress)] * 2


def test_a_refusal_says_what_the_source_wrote_in_one_line(engine: Engine) -> None:
    error = refused(
        paged_spec(),
        engine,
        lambda request: httpx.Response(400, json={"message": "filter 'from-indx' is not known\nsee the manual"}),
    )
    assert """the source says: {"message":"filter 'from-indx' is not known\\nsee the manual"}""" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("kind", "location"),
    [
        (AuthType.API_KEY, Location.QUERY),
        (AuthType.API_KEY, Location.HEADER),
        (AuthType.API_KEY, Location.BODY),
        (AuthType.BEARER, Location.HEADER),
    ],
)
@pytest.mark.parametrize("quote", ["{key}", "/items?who={encoded}&x=1", "[{escaped}]"])
def test_a_source_that_quotes_the_credential_does_not_bring_it_into_the_error(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, kind: AuthType, location: Location, quote: str
) -> None:
    key = 'open/ses"ame77'
    monkeypatch.setenv("MADE_UP_KEY", key)
    auth = AuthSpec(kind, location, "who", credential(engine), "cred", required=True)
    quoted = quote.format(key=key, encoded=urllib.parse.quote(key, safe=""), escaped=json.dumps(key))
    text = f"{quoted} is no customer of ours; ask for 10 items at most"
    error = refused(replace(paged_spec(), auth=auth), engine, lambda request: httpx.Response(403, text=text))
    assert "ame77" not in str(error)
    assert str(error).endswith(" is no customer of ours; ask for 10 items at most")


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(400, html="<html><body>Bad Request</body></html>"),
        httpx.Response(400),
        httpx.Response(400, text=" \n "),
        httpx.Response(400, content=b"\x00\xff", headers={"content-type": "application/octet-stream"}),
    ],
)
def test_an_answer_that_says_nothing_to_people_is_not_quoted(engine: Engine, answer: httpx.Response) -> None:
    assert "the source says" not in str(refused(paged_spec(), engine, lambda request: answer))


def test_a_long_answer_is_cut(engine: Engine) -> None:
    error = refused(paged_spec(), engine, lambda request: httpx.Response(400, text="x" * 100_000))
    assert str(error).endswith("x…")
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    ("status", "level", "code"),
    [
        (503, ErrorLevel.TRANSIENT, "HTTP_503"),
        (400, ErrorLevel.REQUEST, "HTTP_400"),
        (401, ErrorLevel.FATAL, "HTTP_401"),
        (403, ErrorLevel.FATAL, "HTTP_403"),
    ],
)
def test_answers_are_graded_by_whether_asking_again_could_help(
    engine: Engine, status: int, level: ErrorLevel, code: str
) -> None:
    error = refused(paged_spec(), engine, lambda request: httpx.Response(status, text="no"))
    assert (error.level, error.code) == (level, code)


def test_a_long_pause_counts_as_an_answer_for_whoever_drew_it_and_holds_the_others_back(engine: Engine) -> None:
    """Otherwise a request that the source always answers so would be tried for ever, and its window never given up."""
    asked: list[httpx.Request] = []

    def busy(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(503, headers={"Retry-After": "7200"})

    with opened(paged_spec(), engine, busy) as source:
        errors = []
        for _ in range(2):
            with pytest.raises(ResponseError) as found:
                fetch(source)
            errors.append(found.value)
    assert [error.code for error in errors] == ["HTTP_503", "GATE_COOLING_DOWN"]
    assert [error.is_held_back for error in errors] == [False, True]
    assert len(asked) == 1
    assert all(error.not_before is not None for error in errors)


def test_a_quota_that_is_spent_between_two_requests_of_one_call_is_no_answer(engine: Engine) -> None:
    """The source has answered with a redirect, which says nothing of its health nor of this window."""

    def moved(request: httpx.Request) -> httpx.Response:
        return httpx.Response(302, headers={"Location": str(request.url.copy_with(path="/elsewhere"))})

    spec = paged_spec()
    search = replace(spec.search, http=replace(spec.search.http, redirects=True))
    limited = replace(spec, search=search, rate=replace(spec.rate, quota_daily=1))
    with opened(limited, engine, moved) as source, pytest.raises(ResponseError) as found:
        fetch(source)
    assert (found.value.code, found.value.is_held_back) == ("GATE_QUOTA_DAILY", True)


def test_a_token_that_the_source_does_not_know_any_more_is_told_apart(engine: Engine) -> None:
    names = {"page": {**PAGE, "token": "abc"}}
    spec = paged_spec()
    spec = replace(spec, pagination=replace(spec.pagination, type=PaginationType.TOKEN, next_token_path="$.next"))
    error = refused(spec, engine, lambda request: httpx.Response(404, text="no"), names=names)
    assert error.code == EXPIRED_TOKEN


def test_an_error_in_a_body_with_status_200_is_tried_again_and_then_said(engine: Engine) -> None:
    spec = paged_spec()
    assert spec.search is not None
    response = replace(spec.search.response, error_paths=("$.error",), required_paths=("$.items",))
    spec = replace(spec, search=replace(spec.search, response=response))
    answers = iter([{"error": "API rate limit exceeded"}, {"version": "6"}, GOOD])
    with opened(spec, engine, lambda request: httpx.Response(200, json=next(answers))) as source:
        assert fetch(source).document == GOOD
    error = refused(spec, engine, lambda request: httpx.Response(200, json={"error": "out of order"}))
    assert (error.level, error.code) == (ErrorLevel.TRANSIENT, "ERROR_IN_BODY")
    assert "out of order" in str(error)


def test_a_body_that_is_no_json_is_an_error_and_a_line_break_inside_a_text_is_not(engine: Engine) -> None:
    html = refused(paged_spec(), engine, lambda request: httpx.Response(200, html="<h1>down</h1>"))
    assert html.level is ErrorLevel.TRANSIENT
    broken = b'{"items": [], "note": "two\nlines"}'
    with opened(paged_spec(), engine, lambda request: httpx.Response(200, content=broken)) as source:
        assert fetch(source).document["note"] == "two lines"


def test_a_next_page_on_another_origin_is_refused_before_anything_is_sent(engine: Engine) -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(str(request.url))
        return httpx.Response(200, json=GOOD)

    error = refused(paged_spec(), engine, answer, url="https://elsewhere.test/items?page=2")
    assert (error.code, seen) == ("FOREIGN_NEXT_URL", [])
    with opened(paged_spec(), engine, answer) as source:
        fetch(source, url="https://source.test/items?page=2")
    assert seen == ["https://source.test/items?page=2"]


def test_a_value_that_does_not_match_its_pattern_is_never_sent(engine: Engine) -> None:
    spec = paged_spec()
    assert spec.search is not None
    param = RequestParam("q", "q", Location.QUERY, expr="${params.q}", pattern="[a-z]+")
    spec = replace(spec, search=replace(spec.search, params=(*spec.search.params, param)))
    error = refused(spec, engine, lambda request: httpx.Response(200, json=GOOD), names={"params": {"q": "a&b=c"}})
    assert error.code == "CANNOT_RENDER"


def test_a_range_of_ids_replaces_the_parameter_of_the_same_name(engine: Engine) -> None:
    spec = paged_spec()
    assert spec.search is not None
    term = RequestParam("term", "term", Location.QUERY, expr="all")
    ranged = RequestParam("term", "term", Location.QUERY, expr="all AND ${idRange.from}:${idRange.to}[uid]")
    spec = replace(spec, search=replace(spec.search, params=(*spec.search.params, term)), id_range_param=ranged)
    terms: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        terms.append(request.url.params["term"])
        return httpx.Response(200, json=GOOD)

    with opened(spec, engine, answer) as source:
        fetch(source)
        fetch(source, names={"idRange": {"from": 1, "to": 9}})
    assert terms == ["all", "all AND 1:9[uid]"]


def test_a_long_query_is_sent_as_a_form(engine: Engine) -> None:
    spec = paged_spec()
    assert spec.search is not None
    http = replace(spec.search.http, post_above_url_length=60)
    spec = replace(spec, search=replace(spec.search, http=http))
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=GOOD)

    with opened(spec, engine, answer) as source:
        fetch(source)
    assert seen[0].method == "POST"
    assert b"offset=20" in seen[0].content
    assert not seen[0].url.query


def credential(engine: Engine, **values: Any) -> int:
    row = {
        "provenance_code": "made_up",
        "effective_from": NOW,
        "credential_alias": "cred",
        "auth_type_code": "API_KEY",
        "secret_ref": "env:MADE_UP_KEY",
        **values,
    }

    def write(connection: Any) -> int:
        (found,) = connection.execute(reg_prov_credential.insert().values(row)).inserted_primary_key
        return int(found)

    return transact(engine, write)


@pytest.mark.parametrize(
    ("kind", "location", "shown"),
    [
        (AuthType.API_KEY, Location.QUERY, "api_key=s3cr3t"),
        (AuthType.API_KEY, Location.HEADER, "api_key: s3cr3t"),
        (AuthType.BEARER, Location.HEADER, "authorization: Bearer s3cr3t"),
    ],
)
def test_a_credential_is_added_to_the_request_and_to_nothing_that_is_kept(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, kind: AuthType, location: Location, shown: str
) -> None:
    monkeypatch.setenv("MADE_UP_KEY", "s3cr3t")
    auth = AuthSpec(kind, location, "api_key", credential(engine), "cred", required=True)
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        headers = "\n".join(f"{name}: {value}" for name, value in request.headers.items())
        sent.append(f"{request.url}\n{headers}")
        return httpx.Response(200, json=GOOD)

    with opened(replace(paged_spec(), auth=auth), engine, answer) as source:
        fetched = fetch(source)
    assert shown in sent[0]
    assert "s3cr3t" not in repr(fetched)


def test_a_secret_that_is_not_set_is_fatal_and_names_its_reference(engine: Engine) -> None:
    auth = AuthSpec(AuthType.API_KEY, Location.QUERY, "api_key", credential(engine), "cred", required=True)
    error = refused(replace(paged_spec(), auth=auth), engine, lambda request: httpx.Response(200, json=GOOD))
    assert (error.level, error.code) == (ErrorLevel.FATAL, "NO_SECRET")
    assert "MADE_UP_KEY" in str(error)


def test_a_reference_that_was_changed_in_the_registry_is_used_by_plans_that_stand(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MADE_UP_KEY", "old")
    monkeypatch.setenv("NEW_KEY", "new")
    monkeypatch.setattr(credentials, "REREAD_S", 0.0)
    row = credential(engine, location_code="QUERY")
    auth = AuthSpec(AuthType.API_KEY, Location.QUERY, "api_key", row, "cred", required=True)
    sent: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.params["api_key"])
        return httpx.Response(200, json=GOOD)

    def replace_by(after: timedelta, **values: Any) -> None:
        """As a load does: the row that holds ends, and another one begins."""
        ends = update(reg_prov_credential).where(reg_prov_credential.c.effective_to.is_(None))
        transact(engine, lambda connection: connection.execute(ends.values(effective_to=NOW + after)))
        if values:
            credential(engine, location_code="QUERY", effective_from=NOW + after, **values)

    with opened(replace(paged_spec(), auth=auth), engine, answer) as source:
        fetch(source)
        replace_by(timedelta(hours=1), secret_ref="env:NEW_KEY")
        fetch(source)
    with opened(replace(paged_spec(), auth=auth), engine, answer) as source:
        fetch(source)  # another executor, which begins now
        replace_by(timedelta(hours=2), auth_type_code="BEARER", secret_ref="env:MADE_UP_KEY")
        fetch(source)  # sent in another way, which is not the plan's
        replace_by(timedelta(hours=3))
        fetch(source)  # removed: the plan goes on to its end with what it has
    assert sent == ["old", "new", "new", "new", "new"]


@pytest.mark.parametrize(("status", "level"), [(503, ErrorLevel.TRANSIENT), (400, ErrorLevel.FATAL)])
def test_a_token_server_that_is_away_is_waited_for_and_one_that_refuses_is_fatal(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, status: int, level: ErrorLevel
) -> None:
    monkeypatch.setenv("MADE_UP_KEY", "s3cr3t")
    monkeypatch.setenv("MADE_UP_ID", "me")
    row = credential(engine, client_id_ref="env:MADE_UP_ID", token_url="https://source.test/token")
    auth = AuthSpec(AuthType.OAUTH2, Location.HEADER, None, row, "cred", required=True)
    spec = replace(paged_spec(), auth=auth, retry=replace(paged_spec().retry, initial_delay_ms=1, max_delay_ms=1))
    with opened(spec, engine, lambda request: httpx.Response(status)) as source, pytest.raises(ResponseError) as told:
        fetch(source)
    assert (told.value.level, told.value.code) == (level, "NO_TOKEN")
    assert f"no OAuth2 token for 'cred': POST https://source.test/token: status {status}" in str(told.value)


def test_an_oauth2_token_is_fetched_once_and_renewed_when_it_is_refused(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MADE_UP_KEY", "s3cr3t")
    monkeypatch.setenv("MADE_UP_ID", "me")
    row = credential(engine, client_id_ref="env:MADE_UP_ID", token_url="https://source.test/token")
    auth = AuthSpec(AuthType.OAUTH2, Location.HEADER, None, row, "cred", required=True)
    tokens = iter(["first", "second"])
    used: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/token":
            return httpx.Response(200, json={"access_token": next(tokens), "expires_in": 3600})
        used.append(request.headers["authorization"])
        return httpx.Response(401 if len(used) == 2 else 200, json=GOOD)

    with opened(replace(paged_spec(), auth=auth), engine, answer) as source:
        fetch(source)
        fetch(source)
    assert used == ["Bearer first", "Bearer first", "Bearer second"]


def test_requests_share_a_limit_as_the_source_counts(engine: Engine) -> None:
    spec = replace(paged_spec(), auth=AuthSpec(credential_alias="mine"))
    assert rate_key(spec) == "ingest:made_up:items"
    assert rate_key(replace(spec, rate=replace(spec.rate, shared_across_endpoints=True))) == "ingest:made_up"
    assert rate_key(replace(spec, rate=replace(spec.rate, per_credential=True))) == "ingest:made_up:items:mine"
