"""Who gets in: keys, assertions, scopes, and what a refused caller reads."""

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mysql.connector import ProgrammingError as AccessDenied
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import ProgrammingError

from platform_defs.access import authenticator
from platform_defs.access.authenticator import Authenticator
from platform_defs.access.keys import StoredKey, issue_key, revoke_key
from platform_defs.access.principal import ALL_SCOPES
from platform_defs.access.tenants import DEMO_TENANT
from platform_defs.api.http import auth
from platform_defs.store.engine import open_engine
from platform_defs.store.errors import StoreUnavailable
from tests.access.gateways import AUDIENCE, ISSUER, SigningKey
from tests.api.serving import Api, logged_requests, serve_api
from tests.conftest import server_url
from tests.waiting import PATIENCE_S, until

EVENT = {"eventTime": "2026-01-01T00:00:00Z"}


@pytest.fixture
def previous(tmp_path: Path) -> SigningKey:
    return SigningKey("2026-10", tmp_path)


@pytest.fixture
def current(tmp_path: Path) -> SigningKey:
    return SigningKey("2026-11", tmp_path)


@pytest.fixture
def behind_gateway(engine: Engine, current: SigningKey, previous: SigningKey) -> Iterator[Api]:
    keys = f"{current.setting},{previous.setting}"
    with serve_api(engine, gateway_keys=keys, gateway_issuer=ISSUER, gateway_audience=AUDIENCE) as running:
        yield running


def post(api: Api, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return api.client.post("/api/openlineage", json=EVENT, headers=named)


def is_refused(answer: httpx.Response, status: int, *expected: str) -> bool:
    body = answer.json()
    assert answer.status_code == status, answer.text
    assert set(body) == {"status", "message"}
    assert body["status"] == {401: "unauthorized", 403: "forbidden"}[status]
    assert all(text in body["message"] for text in ("expected", *expected)), body
    return True


def test_a_key_is_accepted_raw_as_bearer_and_as_x_api_key(api: Api, key: str) -> None:
    for headers in ({"Authorization": key}, {"Authorization": f"bearer {key}"}, {"X_API_Key": key}):
        answer = post(api, **headers)
        assert answer.status_code == 400
        assert answer.json()["status"] == "bad_request"


def test_an_unknown_key_is_401(api: Api, key: str) -> None:
    forged = key[:-1] + ("0" if key[-1] != "0" else "1")
    unknown = "pk_0123456789abcdef_" + "0" * 48
    for wrong in (forged, unknown, "nonsense", "Basic dXNlcjpwYXNz", "Bearer"):
        answer = post(api, Authorization=wrong)
        assert is_refused(answer, 401, "API key")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert wrong not in answer.text or wrong == "Bearer"


def test_no_credential_at_all_is_401(api: Api) -> None:
    assert is_refused(post(api), 401, "Authorization: Bearer", "X-Gateway-Assertion")


def test_a_missing_scope_is_403_and_names_the_scope(api: Api) -> None:
    key = issue_key(api.engine, "reader", ["chain:read"])
    assert is_refused(post(api, Authorization=key), 403, "lineage:write")


def test_a_revoked_key_that_was_never_used_here_is_401(api: Api, key: str) -> None:
    revoke_key(api.engine, "all")
    assert is_refused(post(api, Authorization=key), 401, "revoked")


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The database does not answer: the keys that it was asked for, to whom it answers after the test."""
    asked: list[str] = []
    release = threading.Event()
    find_key = authenticator.find_key

    def hang(engine: Engine, public_id: str) -> StoredKey | None:
        asked.append(public_id)
        release.wait(PATIENCE_S)
        return find_key(engine, public_id)

    monkeypatch.setattr(auth, "LOOKUP_TIMEOUT_S", 0.1)
    monkeypatch.setattr(auth, "SILENCE_S", PATIENCE_S)
    monkeypatch.setattr(authenticator, "find_key", hang)
    yield asked
    release.set()


def test_while_the_database_is_silent_one_caller_waits_for_it_and_the_next_are_503_at_once(
    api: Api, key: str, silent: list[str]
) -> None:
    while not silent:  # on a busy machine the time for a lookup may be over before a thread has begun it
        answer = post(api, Authorization=key)
        assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
    for _ in range(3):
        answer = post(api, Authorization=key)
        assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
    assert len(silent) == 1


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (StoreUnavailable("no connection"), "does not answer"),
        (ProgrammingError("SELECT 1", None, AccessDenied("wrong password", 1045)), "refuses what it is asked"),
    ],
    ids=["away", "refuses"],
)
def test_a_database_without_an_answer_is_asked_once_in_a_while_and_every_caller_reads_why(
    api: Api,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    trouble: str,
) -> None:
    caplog.set_level(logging.INFO)
    asked: list[str] = []

    def refuse(engine: Engine, public_id: str) -> StoredKey | None:
        asked.append(public_id)
        raise error

    monkeypatch.setattr(auth, "SILENCE_S", PATIENCE_S)
    monkeypatch.setattr(auth, "HOLD_S", 0.0)
    monkeypatch.setattr(authenticator, "find_key", refuse)
    for _ in range(3):
        answer = post(api, Authorization=key)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json()["message"] == f"the database {trouble}; try again"
    assert len(asked) == 1
    assert [line.get("held") for line in logged_requests(caplog, 3)] == [None, True, True]


@contextmanager
def user_of(database: Engine) -> Iterator[tuple[str, Engine, Connection]]:
    """A user of the server: its name, an engine that logs in as it, and a connection of the administrator."""
    user = f"user_{uuid.uuid4().hex[:12]}"
    server = create_engine(server_url("mysql"), connect_args={"collation": "utf8mb4_bin"}, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE USER {user} IDENTIFIED WITH caching_sha2_password BY ''"))
        of_user = open_engine(database.url.set(username=user, password=""))
        try:
            yield user, of_user, connection
        finally:
            of_user.dispose()
            connection.execute(text(f"DROP USER {user}"))
    server.dispose()


@pytest.mark.needs("mysql")
@pytest.mark.parametrize(
    ("change", "undo"),
    [
        ("IDENTIFIED WITH caching_sha2_password BY 'another'", "IDENTIFIED WITH caching_sha2_password BY ''"),
        ("ACCOUNT LOCK", "ACCOUNT UNLOCK"),
        ("PASSWORD EXPIRE", "IDENTIFIED WITH caching_sha2_password BY ''"),
    ],
    ids=["password", "locked", "expired"],
)
def test_a_database_that_lets_nobody_in_any_more_is_503_as_one_that_does_not_answer(
    migrated: dict[str, Engine], monkeypatch: pytest.MonkeyPatch, change: str, undo: str
) -> None:
    monkeypatch.setattr(auth, "HOLD_S", 0.0)
    with user_of(migrated["mysql"]) as (user, of_user, administrator):
        administrator.execute(text(f"GRANT ALL ON {of_user.url.database}.* TO {user}"))
        known, unknown = (issue_key(of_user, name, ALL_SCOPES) for name in ("known", "unknown"))
        with serve_api(of_user) as api:
            assert post(api, Authorization=known).status_code == 400
            administrator.execute(text(f"ALTER USER {user} {change}"))
            of_user.dispose()
            answer = post(api, Authorization=unknown)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert answer.json()["message"] == "the database refuses what it is asked; try again"
            administrator.execute(text(f"ALTER USER {user} {undo}"))
            until("the key to be accepted", lambda: post(api, Authorization=unknown).status_code == 400)


@pytest.mark.needs("mysql")
def test_keys_do_not_wait_for_the_table_that_only_assertions_write_to(
    migrated: dict[str, Engine], current: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "SILENCE_S", PATIENCE_S)
    monkeypatch.setattr(auth, "HOLD_S", 0.0)
    gateway = {"gateway_keys": current.setting, "gateway_issuer": ISSUER, "gateway_audience": AUDIENCE}
    key = issue_key(migrated["mysql"], "reads", ALL_SCOPES)
    with user_of(migrated["mysql"]) as (user, of_user, administrator):
        administrator.execute(text(f"GRANT SELECT ON {of_user.url.database}.* TO {user}"))
        with serve_api(of_user, **gateway) as api:
            for _ in range(2):
                answer = post(api, X_Gateway_Assertion=current.sign())
                assert answer.status_code == 503
                assert answer.json()["message"] == "the database refuses what it is asked; try again"
            assert post(api, Authorization=key).status_code == 400


def test_a_forged_assertion_does_not_keep_others_waiting_when_the_database_is_back(
    behind_gateway: Api, current: SigningKey, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def away(engine: Engine, assertion: object) -> None:
        raise StoreUnavailable("no connection")

    monkeypatch.setattr(auth, "SILENCE_S", 0.0)
    monkeypatch.setattr(auth, "HOLD_S", 0.0)
    with monkeypatch.context() as outage:
        outage.setattr(authenticator, "mark_used", away)
        assert post(behind_gateway, X_Gateway_Assertion=current.sign()).status_code == 503
    monkeypatch.setattr(auth, "SILENCE_S", PATIENCE_S)
    forged = SigningKey("stranger", tmp_path).sign(kid=current.kid)
    assert is_refused(post(behind_gateway, X_Gateway_Assertion=forged), 401, "signature")
    assert post(behind_gateway, X_Gateway_Assertion=current.sign()).status_code == 400


def test_a_key_that_was_good_a_moment_ago_is_so_while_the_database_is_silent(
    api: Api, key: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    assert post(api, Authorization=key).status_code == 400
    asked = request.getfixturevalue("silent")
    monkeypatch.setattr(Authenticator.cached_principal, "__defaults__", (-1.0,))  # its usual memory is over
    for _ in range(2):
        assert post(api, Authorization=key).status_code == 400
    assert len(asked) == 1


def test_a_caller_is_authenticated_before_its_body_is_read(api: Api) -> None:
    answer = api.client.post("/api/openlineage", content=b"x" * (17 << 20))
    assert answer.status_code == 401


def test_an_assertion_is_accepted_with_the_current_and_with_the_previous_key(
    behind_gateway: Api, current: SigningKey, previous: SigningKey
) -> None:
    for key in (current, previous):
        assert post(behind_gateway, X_Gateway_Assertion=key.sign()).status_code == 400


@pytest.mark.parametrize(
    ("changes", "claim"),
    [
        ({"exp": 1_700_000_060, "iat": 1_700_000_000}, "exp"),
        ({"path": "/api/open/kpi/srcTableComplete"}, "path"),
        ({"method": "GET"}, "method"),
        ({"kid": "1999-01"}, "kid"),
        ({"aud": "another"}, "aud"),
        ({"iss": "https://elsewhere.example"}, "iss"),
    ],
    ids=str,
)
def test_a_wrong_assertion_is_401_and_names_the_claim(
    behind_gateway: Api, current: SigningKey, changes: dict[str, Any], claim: str
) -> None:
    answer = post(behind_gateway, X_Gateway_Assertion=current.sign(**changes))
    assert is_refused(answer, 401, f"X-Gateway-Assertion: {claim}:")


def test_a_forged_assertion_is_401_even_beside_a_valid_key(
    behind_gateway: Api, current: SigningKey, key: str, tmp_path: Path
) -> None:
    forged = SigningKey("stranger", tmp_path).sign(kid=current.kid)
    assert is_refused(post(behind_gateway, X_Gateway_Assertion=forged, Authorization=key), 401, "signature")
    assert is_refused(post(behind_gateway, X_Gateway_Assertion="nonsense", Authorization=key), 401, "JWT")


def test_a_replayed_assertion_is_401(behind_gateway: Api, current: SigningKey) -> None:
    token = current.sign()
    assert post(behind_gateway, X_Gateway_Assertion=token).status_code == 400
    assert is_refused(post(behind_gateway, X_Gateway_Assertion=token), 401, "jti", "not used before")


def test_an_assertion_may_post_lineage_and_no_more_unless_it_says_so(behind_gateway: Api, current: SigningKey) -> None:
    path = "/api/open/kpi/srcTableComplete"
    for changes, status in (({}, 403), ({"scope": "arrivals:write"}, 400)):
        headers = {"X-Gateway-Assertion": current.sign(path=path, **changes)}
        assert behind_gateway.client.post(path, json={}, headers=headers).status_code == status


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_without_a_gateway_an_assertion_is_401(api: Api, current: SigningKey) -> None:
    assert is_refused(post(api, X_Gateway_Assertion=current.sign()), 401, "no gateway is configured")


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_an_open_door_serves_this_machine_and_no_page_from_elsewhere(engine: Engine) -> None:
    assert DEMO_TENANT.id == 1
    with serve_api(engine, auth="open") as api:
        assert post(api).status_code == 400
        assert post(api, Origin="http://localhost:3000").status_code == 400
        assert is_refused(post(api, Origin="https://evil.example"), 403, "this machine")
        assert is_refused(post(api, Host="rebound.example"), 403, "this machine")


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/api/open/kpi/srcTableComplete", "arrivals:write"),
        ("POST", "/api/v1/chains", "chain:write"),
        ("GET", "/api/v1/chains", "chain:read"),
        ("GET", "/api/v1/chains/c1", "chain:read"),
        ("PUT", "/api/v1/chains/c1", "chain:write"),
        ("POST", "/api/v1/chains/c1:enable", "chain:write"),
        ("POST", "/api/v1/chains/c1:disable", "chain:write"),
        ("POST", "/api/v1/chains/c1:start", "run:write"),
        ("POST", "/api/v1/chains/c1:start", "run:control"),
        ("GET", "/api/v1/runs/r1", "run:read"),
        ("GET", "/api/v1/runs/r1/nodes", "run:read"),
        ("POST", "/api/v1/runs/r1:stop", "run:control"),
        ("POST", "/api/v1/runs/r1/nodes/n1:retry", "run:control"),
        ("POST", "/api/v1/runs/r1/nodes/n1:complete", "run:control"),
        ("POST", "/api/v1/jobs", "chain:write"),
        ("GET", "/api/v1/jobs", "chain:read"),
        ("GET", "/api/v1/jobs/j1", "chain:read"),
        ("PUT", "/api/v1/jobs/j1", "chain:write"),
        ("POST", "/api/v1/jobs/j1:enable", "chain:write"),
        ("POST", "/api/v1/jobs/j1:disable", "chain:write"),
        ("POST", "/api/v1/jobs/j1:start", "run:write"),
        ("POST", "/api/v1/jobs/j1:start", "run:control"),
    ],
)
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_every_path_of_the_systems_asks_for_its_scope(api: Api, method: str, path: str, scope: str) -> None:
    def status(*scopes: str) -> int:
        headers = {"Authorization": issue_key(api.engine, "some", scopes)} if scopes else {}
        return api.client.request(method, path, json={}, headers=headers).status_code

    assert status() == 401
    assert status("webhooks:write") == 403
    # lists are whole; everything else asks for more than an empty body, or for something that exists
    assert status(scope) == (200 if method == "GET" and path.count("/") == 3 else 400)


def test_a_browser_without_a_key_is_shown_how_to_read_the_page(api: Api) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answer = api.client.get("/api/open/kpi/tasks/7?<script>='x'", headers=browser)
    assert (answer.status_code, answer.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "WWW-Authenticate" in answer.headers
    assert "platform keys issue me --scopes arrivals:read" in answer.text
    assert "/api/open/kpi/tasks/7" in answer.text
    assert "<script>" not in answer.text
    for others in ({"Accept": "*/*"}, {**browser, "Authorization": "Bearer wrong"}, {**browser, "X-API-Key": "wrong"}):
        assert api.client.get("/api/open/kpi/tasks/7", headers=others).json()["status"] == "unauthorized"
