"""The door against a real server on loopback: what is tried again, what is not, and what an error tells."""

import threading

import httpx
import pytest

from platform_defs.http_door.door import Door
from platform_defs.http_door.errors import Cancelled, Exhausted, HeldBack, InvalidRequest, Refused
from platform_defs.http_door.policy import RetryPolicy
from platform_defs.rate_gate.decisions import Reason
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.policy import RatePolicy
from platform_defs.rate_gate.signals import Outcome
from tests.http_door.conftest import FAST, Opened, passage
from tests.http_door.source import answer, hang_up, serving


def get(url: str, **more: str) -> httpx.Request:
    return httpx.Request("GET", url, headers=more)


def test_an_answer_comes_back_with_what_it_took(opened: Opened) -> None:
    with serving(answer(200, b'{"items": []}', X_RateLimit_Limit="100", X_RateLimit_Interval="1s")) as source:
        exchange = opened.door.send(get(source.url()), passage(task="t"))
    assert exchange.response.json() == {"items": []}
    facts = exchange.facts
    assert (len(facts.attempts), facts.retries, facts.permits, facts.count_429) == (1, 0, 1, 0)
    assert facts.digest()["rate"]["limitKey"] == "source/works"
    assert facts.digest()["quota"]["limit"] == 100
    assert source.asked[0].headers["user-agent"] == "platform-defs"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 599])
def test_what_passes_by_itself_is_tried_again(opened: Opened, status: int) -> None:
    with serving(answer(status), answer(status), answer(200)) as source:
        exchange = opened.door.send(get(source.url()), passage())
    assert [attempt.status for attempt in exchange.facts.attempts] == [status, status, 200]
    assert exchange.facts.count_429 == (2 if status == 429 else 0)
    assert exchange.facts.demotions == 2


@pytest.mark.parametrize("status", [301, 400, 403, 404, 408, 409, 422, 423])
def test_what_does_not_is_refused_at_once_with_the_answer(opened: Opened, status: int) -> None:
    with serving(answer(status, b"no such cursor")) as source, pytest.raises(Refused) as refused:
        opened.door.send(get(source.url() + "?api_key=hunter2"), passage())
    assert (refused.value.status, refused.value.response.content) == (status, b"no such cursor")
    assert len(source.asked) == 1
    assert "hunter2" not in str(refused.value)


def test_statuses_can_be_declared_either_way(opened: Opened) -> None:
    retry = RetryPolicy(retry_statuses=frozenset({409}), give_up_statuses=frozenset({500}))
    with serving(answer(409), answer(500)) as source, pytest.raises(Exhausted) as exhausted:
        opened.door.send(get(source.url()), passage(retry=retry))
    assert [attempt.status for attempt in exhausted.value.facts.attempts] == [409, 500]
    with serving(answer(404)) as source:
        exchange = opened.door.send(get(source.url()), passage(accept_statuses=frozenset({404})))
    assert exchange.response.status_code == 404


def test_pauses_grow_and_attempts_end(opened: Opened) -> None:
    with serving(answer(503)) as source, pytest.raises(Exhausted, match="status 503 after 5 attempts") as exhausted:
        opened.door.send(get(source.url()), passage(rate=RatePolicy(refill_per_s=1000, burst=500, r_min=1000)))
    assert len(source.asked) == 5
    pauses = [wait for wait in opened.clock.waits if wait > 0.05]
    assert [round(pause / 0.1, 1) for pause in pauses] == pytest.approx([1, 2, 4, 8], rel=0.2)
    assert exhausted.value.status == 503


def test_who_listens_hears_why_a_request_is_repeated_before_it_is(opened: Opened) -> None:
    told: list[tuple[int, str]] = []
    with serving(answer(503), answer(429, Retry_After="10"), answer(200)) as source:
        listening = Door(opened.gate, seed=1, on_retry=lambda text: told.append((len(source.asked), text)))
        with listening as door:
            door.send(get(source.url("/works?key=hidden")), passage())
        url = source.url("/works")
    [(first, text), (second, pause)] = told
    assert (first, second) == (1, 2)
    assert text.startswith(f"GET {url}: status 503, trying again in 0.")
    assert pause == f"GET {url}: status 429, and a pause of 10 s is asked for"


def test_a_pause_that_the_source_asks_for_is_kept_by_every_request(opened: Opened) -> None:
    with serving(answer(429, Retry_After="10"), answer(200)) as source:
        opened.door.send(get(source.url()), passage())
    assert 10.5 <= opened.clock.monotonic() <= 11.6
    with serving(
        answer(503, Retry_After="Fri, 15 Jan 2027 12:01:00 GMT", Date="Fri, 15 Jan 2027 12:00:00 GMT")
    ) as source:
        with pytest.raises(HeldBack) as held:
            opened.door.send(get(source.url()), passage(deadline_s=5))
        assert held.value.reason is Reason.COOLING_DOWN
        until = (held.value.until - opened.clock.now()).total_seconds()
        assert 63 <= until <= 69
        with pytest.raises(HeldBack):
            opened.door.send(get(source.url()), passage(deadline_s=5))
        assert len(source.asked) == 1


def test_a_longer_pause_than_the_policy_allows_is_left_to_the_caller(opened: Opened) -> None:
    with serving(answer(429, Retry_After="100")) as source, pytest.raises(HeldBack) as held:
        opened.door.send(get(source.url()), passage(retry=RetryPolicy(retry_after_cap_s=60)))
    assert 105 <= (held.value.until - opened.clock.now()).total_seconds() <= 115
    assert len(source.asked) == 1


def test_connections_that_break_are_tried_again(opened: Opened) -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"
    with serving(hang_up(), hang_up(cut), answer(200, b"whole")) as source:
        exchange = opened.door.send(get(source.url()), passage())
    assert exchange.response.content == b"whole"
    assert [attempt.status for attempt in exchange.facts.attempts] == [None, None, 200]


def test_a_post_is_not_sent_twice_unless_the_source_did_not_act(opened: Opened) -> None:
    post = httpx.Request("POST", "http://x", json={"a": 1})
    with serving(hang_up(), answer(200)) as source, pytest.raises(Exhausted):
        opened.door.send(httpx.Request("POST", source.url(), content=b"a=1"), passage())
    with serving(answer(500), answer(200)) as source, pytest.raises(Exhausted):
        opened.door.send(httpx.Request("POST", source.url(), content=b"a=1"), passage())
    with serving(answer(429), answer(503), answer(200)) as source:
        opened.door.send(httpx.Request("POST", source.url(), content=post.read()), passage())
    assert [asked.body for asked in source.asked] == [b'{"a":1}'] * 3
    with serving(hang_up(), answer(500), answer(200)) as source:
        opened.door.send(httpx.Request("POST", source.url(), content=b"a=1"), passage(is_repeatable=True))
    assert len(source.asked) == 3


def test_a_port_where_nobody_listens_is_tried_again_also_for_a_post(opened: Opened) -> None:
    with serving(answer(200)) as source:
        url = source.url()
    with pytest.raises(Exhausted, match=r"no answer .*refused.* after 5 attempts"):
        opened.door.send(httpx.Request("POST", url, content=b""), passage())


def test_a_body_can_say_that_a_success_is_none(opened: Opened) -> None:
    def judge(response: httpx.Response) -> Outcome | None:
        return Outcome.RATE_LIMITED if "error" in response.json() else None

    with serving(answer(200, b'{"error": "API rate limit exceeded"}'), answer(200, b'{"count": "0"}')) as source:
        exchange = opened.door.send(get(source.url()), passage(judge=judge))
    assert exchange.response.json() == {"count": "0"}
    assert exchange.facts.count_429 == 1
    assert opened.gate.standing("source/works", FAST).rate_per_s == 50
    with serving(answer(200, b"{}")) as source, pytest.raises(Refused):
        opened.door.send(get(source.url()), passage(judge=lambda response: Outcome.OTHER))


def test_every_attempt_is_prepared_anew_and_a_401_renews_once(opened: Opened) -> None:
    tokens: list[str] = []

    def prepare(request: httpx.Request, last: httpx.Response | None) -> httpx.Request:
        assert "authorization" not in request.headers
        if not tokens or (last is not None and last.status_code == 401):
            tokens.append(f"token-{len(tokens)}")
        request.headers["Authorization"] = f"Bearer {tokens[-1]}"
        return request

    with serving(answer(401), answer(503), answer(200)) as source:
        opened.door.send(get(source.url()), passage(prepare=prepare, renews_on_401=True))
    assert [asked.headers["authorization"][-7:] for asked in source.asked] == ["token-0", "token-1", "token-1"]
    with serving(answer(401)) as source, pytest.raises(Refused):
        opened.door.send(get(source.url()), passage(prepare=prepare, renews_on_401=True))
    assert len(source.asked) == 2


def test_a_preparation_that_takes_too_long_gets_a_new_permit_and_is_not_repeated(opened: Opened) -> None:
    prepared = []

    def prepare(request: httpx.Request, last: httpx.Response | None) -> httpx.Request:
        prepared.append(request)
        opened.clock.advance(5)
        return request

    with serving(answer(200)) as source:
        exchange = opened.door.send(get(source.url()), passage(prepare=prepare))
    assert (len(prepared), exchange.facts.permits, len(exchange.facts.attempts)) == (1, 2, 1)


def test_requests_under_way_at_once_are_limited_and_each_gives_its_lease_back(opened: Opened) -> None:
    single = RatePolicy(refill_per_s=100, burst=50, max_concurrent=1)
    with serving(answer(200), answer(500), answer(200)) as source:
        for _ in range(2):
            opened.door.send(get(source.url()), passage(rate=single))
        lease = opened.gate.leases.take("source/works", 1, ttl_s=3600)
        assert lease is not None
        with pytest.raises(HeldBack) as held:
            opened.door.send(get(source.url()), passage(rate=single, deadline_s=10))
        assert held.value.reason is Reason.CONCURRENCY
        assert len(source.asked) == 3
        opened.gate.leases.release(lease)
        opened.door.send(get(source.url()), passage(rate=single, deadline_s=10))


def test_a_lease_lasts_as_long_as_the_slot_is_waited_for(opened: Opened) -> None:
    slow = RatePolicy(refill_per_s=1 / 600, max_concurrent=1)
    other = RateGate(opened.engine, clock=opened.clock, now_us=opened.clock.now_us)
    seen: list[bool] = []

    def prepare(request: httpx.Request, last: httpx.Response | None) -> httpx.Request:
        seen.append(other.leases.take("source/works", 1, ttl_s=60) is not None)
        return request

    with serving(answer(200)) as source:
        for _ in range(2):
            opened.door.send(get(source.url()), passage(rate=slow, prepare=prepare, deadline_s=900))
    assert opened.clock.monotonic() > 590
    assert seen == [False, False]


def test_waiting_hears_that_the_caller_gave_up(opened: Opened) -> None:
    cancel = threading.Event()
    slow = RatePolicy(refill_per_s=0.01, quota_hourly=10)
    with serving(answer(200)) as source:
        opened.door.send(get(source.url()), passage(rate=slow, cancel=cancel))
        cancel.set()
        with pytest.raises(Cancelled):
            opened.door.send(get(source.url()), passage(rate=slow, cancel=cancel))
        opened.clock.advance(1000)
        opened.door.send(get(source.url()), passage(rate=slow))
    assert len(source.asked) == 2
    assert opened.gate.standing("source/works", slow).hour_left == 8


def test_a_gate_that_stays_closed_says_until_when(opened: Opened) -> None:
    daily = RatePolicy(refill_per_s=100, burst=50, quota_daily=1)
    with serving(answer(200)) as source:
        opened.door.send(get(source.url()), passage(rate=daily))
        with pytest.raises(HeldBack) as held:
            opened.door.send(get(source.url()), passage(rate=daily))
    assert held.value.reason is Reason.QUOTA_DAILY
    assert held.value.facts.hard_quota_hits == 1
    assert held.value.until.time().isoformat() == "00:00:00"


def test_what_cannot_be_sent_is_not_tried_again(opened: Opened) -> None:
    with pytest.raises(InvalidRequest):
        opened.door.send(get("ftp://127.0.0.1/x"), passage())
    with serving(answer(200)) as source, pytest.raises(InvalidRequest):
        opened.door.send(get(source.url(), Accept="a\r\nX-Injected: b"), passage())
    assert source.asked == []


def test_threads_share_a_door_and_its_connections(opened: Opened) -> None:
    statuses: list[int] = []

    def fetch(number: int) -> None:
        for turn in range(5):
            exchange = opened.door.send(get(source.url(f"/{number}/{turn}")), passage(task=str(number)))
            assert exchange.response.content == b"{}"
            statuses.append(exchange.response.status_code)

    with serving(answer(200)) as source:
        threads = [threading.Thread(target=fetch, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert statuses == [200] * 30
    assert len({asked.target for asked in source.asked}) == 30
    assert source.connections <= 6


def test_no_log_line_and_no_error_shows_a_query(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with serving(answer(500)) as source, pytest.raises(Exhausted) as exhausted:
        opened.door.send(get(source.url() + "?api_key=hunter2&x=1"), passage())
    assert "trying again" in caplog.text
    assert "hunter2" not in caplog.text + str(exhausted.value) + str(exhausted.value.facts.digest())
