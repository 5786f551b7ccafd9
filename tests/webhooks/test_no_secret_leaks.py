"""A literal secret goes to its receiver and nowhere else: not into a table, a log, a listing or an error."""

import base64
import json
import logging
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, select

from platform_defs.cli import cli
from platform_defs.store.tables import metadata
from tests.webhooks.receiver import Clock, Received, notify, receiving, sending, subscribe, with_kpis

HEADER, QUERY, BODY = "Bearer s3cr3t-header", "s3cr3t query&value", "s3cr3t-body"
SIGNING = "whsec_" + base64.b64encode(b"s3cr3t-signing-secret-of-32-byte").decode()
FORBIDDEN = (
    "s3cr3t",
    SIGNING,
    SIGNING.removeprefix("whsec_"),
    quote(QUERY),
    *(base64.b64encode(text.encode()).decode() for text in (HEADER, QUERY, BODY)),
)


def database_dump(engine: Engine) -> str:
    with engine.connect() as connection:
        return "\n".join(
            repr(tuple(row)) for table in metadata.sorted_tables for row in connection.execute(select(table))
        )


def assert_clean(text: str) -> None:
    assert [word for word in FORBIDDEN if word in text] == []


def echo(request: Received) -> tuple[int, bytes]:
    """The worst receiver: tells back everything, once more than fits so that the end of it is cut."""
    said = json.dumps([request.path, dict(request.headers), request.body.decode()]).encode()
    return 500, (said * 9)


def test_a_literal_secret_is_nowhere_but_at_its_receiver(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    monkeypatch.setenv("PLATFORM_WEBHOOK_ALLOW", "127.0.0.0/8")
    with_kpis(engine)
    shown: list[str] = []

    def platform(*arguments: str, stdin: str | None = None) -> str:
        done = CliRunner().invoke(cli, ["webhooks", *arguments], input=stdin)
        shown.append(done.output + repr(done.exception))
        return done.output

    clock = Clock()
    with receiving(echo) as receiver:
        for path, secret in (
            ("/header", f"Header,Authorization,{HEADER}"),
            ("/query", f"Query,token,{QUERY}"),
            ("/body", f'Body,json,{{"appId":"{BODY}"}}'),
        ):
            platform(
                "add", "--kpi", "KD1001", "--url", receiver.url(path), "--secret", "-", "--retry", "0",
                "--signing-secret", SIGNING, stdin=f"{secret}\n",
            )  # fmt: skip
        receiver.more_headers["Location"] = f"/again?token={quote(QUERY)}"
        for wrong in (HEADER, f"Header,Host,{HEADER}", f"Header,X,{HEADER}\r\nX: y", f"Body,json,{BODY}"):
            platform("add", "--kpi", "KD1001", "--url", receiver.url(), "--secret", wrong)
        platform("add", "--kpi", "KD404", "--url", receiver.url(), "--secret", f"Header,X,{HEADER}")
        platform("add", "--kpi", "KD1001", "--url", f"http://user:{BODY}@127.0.0.1/")
        notify(engine)
        with sending(engine, tmp_path, clock=clock) as sender:
            assert sender.send_due() == 3
    assert {request.headers.get("authorization") for request in receiver.received} == {None, HEADER}
    listing = platform("list")
    assert listing.count("Header,Authorization,***") == 1
    assert "Query,token,***" in listing
    assert "Body,json,***" in listing
    assert json.loads(platform("list", "--json").splitlines()[0])["signingSecret"] == "***"
    assert platform("deliveries", "--status", "dead").count(" dead ") == 3
    kept = [json.loads(line)["attempts"][0]["answer"] for line in platform("deliveries", "--json").splitlines()]
    assert all("***" in answer and len(answer.encode()) <= 1024 for answer in kept)
    dump = database_dump(engine)
    assert "enc:v1:" in dump
    for text in (dump, caplog.text, repr([vars(record) for record in caplog.records]), *shown):
        assert_clean(text)
    assert_clean((tmp_path / "webhook.key").read_text())


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_commands_manage_subscriptions_and_dead_letters(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    monkeypatch.setenv("PLATFORM_DB_URL", engine.url.render_as_string(hide_password=False))
    with_kpis(engine)

    def platform(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["webhooks", *arguments])
        return done.exit_code, f"{done.output}{done.exception or ''}".strip()

    url = "https://hooks.example/a"
    code, number = platform("add", "--kpi", "KD1001", "--url", url, "--secret", "Header,X-Key,env:HOOK", "--team", "t")
    assert (code, number.isdigit()) == (0, True)
    assert "Header,X-Key,env:HOOK" in platform("list")[1]
    assert platform("disable", number) == (0, f"subscription {number} disabled")
    assert json.loads(platform("list", "--json")[1])["disabledReason"] == "disabled by an operator"
    assert platform("enable", number)[0] == 0
    assert platform("remove", number)[0] == 0
    assert platform("list") == (0, "no subscriptions yet; `platform webhooks add` adds one")
    assert platform("remove", number) == (1, f"no subscription has the id {number}")
    assert "kpiId: no KPI has the id 'KD404'" in platform("add", "--kpi", "KD404", "--url", url)[1]
    refused = platform("add", "--kpi", "KD1001", "--url", "http://169.254.169.254/latest")
    assert refused[0] == 1
    assert "not a public address" in refused[1]
    assert platform("redeliver")[0] == 2
    assert platform("redeliver", "7") == (1, "no delivery has the id 7")
    assert platform("redeliver", "--all-dead") == (0, "0 dead letters will be sent again")
    subscribe(engine, tmp_path, url)
    notify(engine)
    (line,) = platform("deliveries", "--json")[1].splitlines()
    delivery = json.loads(line)
    assert (delivery["status"], delivery["attempts"]) == ("PENDING", [])
    assert platform("redeliver", str(delivery["id"])) == (1, f"delivery {delivery['id']} is not a dead letter")
