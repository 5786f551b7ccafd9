"""Logs are JSON lines with the request id, or short ones for a terminal, and no secret survives in either."""

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from platform_defs import logs

KEY = "pk_0123456789abcdef_" + "ab" * 24
TOKEN = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root, captured = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    logs.configure_logging("INFO", captured)
    yield captured
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"key {KEY}!", "key pk_0123456789abcdef_***!"),
        (f"token {TOKEN}.", "token ***."),
        ("mysql+mysqlconnector://root:hunter2@db:3306/x", "mysql+mysqlconnector://root:***@db:3306/x"),
        ("bolt://neo4j:p@ss@host", "bolt://neo4j:***@host"),
        ("Authorization: Bearer hunter2-hunter2", "Authorization: ***"),
        ("authorization=bearer hunter2", "authorization=***"),
        ("sent Bearer hunter2-hunter2", "sent Bearer ***"),
        ("{'authorization': 'hunter2'}", "{'authorization': '***'}"),
        ("(b'x-api-key', b'hunter2')", "(b'x-api-key', b'***')"),
        ("https://host/path?api_key=hunter2&page=2", "https://host/path?api_key=***&page=2"),
        ("https://host:8443/path nothing@secret here", "https://host:8443/path nothing@secret here"),
        ("expected a Bearer key", "expected a Bearer key"),
    ],
)
def test_secrets_are_masked_and_the_rest_stays_readable(text: str, expected: str) -> None:
    assert logs.mask_secrets(text) == expected


def test_a_line_is_json_with_fields_trace_and_request_id_and_nothing_secret(stream: io.StringIO) -> None:
    token = logs.request_id.set("trace-7")
    try:
        raise ValueError(f"refused {KEY}")
    except ValueError:
        fields = {"count": 3, "headers": {"Authorization": "hunter2", "list": [TOKEN]}, "where": {1, "x"}}
        logging.getLogger("test").error("failed for %s", KEY, exc_info=sys.exc_info(), extra=fields)
    finally:
        logs.request_id.reset(token)
    (text,) = stream.getvalue().splitlines()
    line = json.loads(text)
    assert line["requestId"] == "trace-7"
    assert line["level"] == "ERROR"
    assert line["count"] == 3
    assert "Traceback" in line["error"]
    for secret in ("abab", TOKEN, "hunter2"):
        assert secret not in text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "form", "human"),
    [(True, "", True), (False, "", False), (True, "json", False), (False, "human", True)],
)
def test_a_terminal_gets_lines_for_people_unless_somebody_asks_for_json(
    stream: io.StringIO, terminal: bool, form: str, human: bool
) -> None:
    target = Terminal() if terminal else io.StringIO()
    logs.configure_logging("INFO", target, form)
    fields = {"method": "POST", "path": "/x", "status": 201, "ms": 3.2, "headers": {"Authorization": "hunter2"}}
    fields["principal"] = None  # a request without a key
    logging.getLogger("test").info("POST /x 201", extra=fields)
    logging.getLogger("test").warning("refused %s", KEY)
    first, second = target.getvalue().splitlines()
    assert first.startswith("{") is not human
    if human:
        assert first.split(" ", 1)[1] == "POST /x 201 ms=3.2 headers={'Authorization': '***'}"
        assert second.split(" ", 1)[1] == "WARNING refused pk_0123456789abcdef_***"
    for secret in ("abab", "hunter2"):
        assert secret not in target.getvalue()


def test_a_process_without_logging_of_its_own_shows_time_and_level_of_what_it_warns_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert logging.lastResort is not None
    monkeypatch.setattr(logging.lastResort, "formatter", None)
    record = logging.LogRecord("sensors", logging.ERROR, "", 1, "model M is not executed again", (), None)
    logs.format_unconfigured()
    assert logging.lastResort.format(record)[8:] == " ERROR model M is not executed again"
    logs.format_unconfigured("json")
    assert json.loads(logging.lastResort.format(record))["level"] == "ERROR"


def test_a_line_that_comes_every_second_is_logged_once_a_minute_with_how_often_it_came(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    sparse = logs.SparseLog(logging.getLogger("sparse"), clock=lambda: now)
    for second in range(121):
        now = float(second)
        sparse.write(logging.ERROR, "the database is away")
        sparse.write(logging.ERROR, f"row {second % 2} cannot be closed")
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if line.startswith("the database")] == [
        "the database is away",
        "the database is away (59 times more since this was logged last)",
        "the database is away (59 times more since this was logged last)",
    ]
    assert len([line for line in lines if line.startswith("row")]) == 5
