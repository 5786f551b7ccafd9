"""What a program may read has --json: a walk over all commands, with a reason for each that has none."""

import importlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from sqlalchemy import insert

from platform_defs.cli import COMMANDS
from platform_defs.ingest.execution.executor import Executor
from platform_defs.lineage.upkeep import retention
from platform_defs.store.engine import open_engine, transact
from platform_defs.store.tables.webhooks import metrics_webhook_delivery
from platform_defs.webhooks.deliveries import DEAD
from tests.commands.command_line import RunPlatform

Answer = Callable[..., list[dict[str, Any]]]

ALONE = "prints one value alone, which a program reads as it is"
IS_JSON = "always prints JSON"
SERVES = "runs until it is stopped"
SENTENCE = "does what it says or fails: its exit code is the answer, the sentence is for people"
WITHOUT_JSON = {
    "chains disable": SENTENCE,
    "chains enable": SENTENCE,
    "chains show": IS_JSON,
    "chains start": ALONE,
    "db revision": ALONE,
    "demo load": SENTENCE,
    "demo remove": SENTENCE,
    "demo show": "a guide for people",
    "ingest replay": IS_JSON,
    "ingest unblock": SENTENCE,
    "keys issue": ALONE,
    "lineage graph": IS_JSON,
    "models publish": SENTENCE,
    "models release": SENTENCE,
    "models rename": SENTENCE,
    "models retire": SENTENCE,
    "models unpublish": SENTENCE,
    "runner release": SENTENCE,
    "serve": SERVES,
    "up": f"{SERVES}; programs read up.json",
    "webhooks add": ALONE,
    "webhooks disable": SENTENCE,
    "webhooks enable": SENTENCE,
    "webhooks remove": SENTENCE,
}


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from leaves(below, (*path, name))
    else:
        yield " ".join(path), command


def test_every_command_has_json_or_a_reason_why_not() -> None:
    found = {
        name: any("--json" in parameter.opts for parameter in command.params)
        for group, (module, _) in COMMANDS.items()
        for name, command in leaves(importlib.import_module(module).command, (group,))
    }
    assert len(found) > 60
    assert {name for name, has_json in found.items() if not has_json} == set(WITHOUT_JSON)


@pytest.fixture
def answer(run_platform: RunPlatform) -> Answer:
    """The lines of a command's JSON."""

    def command(*arguments: str) -> list[dict[str, Any]]:
        code, out, err = run_platform(*arguments, "--json")
        assert (code, err) == (0, ""), err
        return [json.loads(line) for line in out.splitlines()]

    return command


def test_what_commands_changed_is_json_too(run_platform: RunPlatform, answer: Answer, tmp_path: Path) -> None:
    assert answer("tenants", "add", "7", "acme", "Acme") == [{"id": 7, "code": "acme", "name": "Acme", "added": True}]
    assert answer("tenants", "add", "7", "acme", "Acme")[0]["added"] is False
    added = answer("registry", "diff", "preset:crossref")
    assert {change["change"] for change in added} == {"added"}
    assert answer("registry", "load", "preset:crossref") == added
    assert answer("registry", "load", "preset:crossref") == []
    (moved,) = answer("registry", "base-url", "crossref", "http://127.0.0.1:1")
    assert moved["change"] == "changed"
    assert any(column["after"] == "http://127.0.0.1:1" for column in moved["columns"].values())
    models = tmp_path / "models.yaml"
    models.write_text(
        "models: [{model_id: M, name: M, depends_on: [T], source: platform,"
        " sql: 'SELECT ${kpis} FROM T', kpis: [{kpi_id: K, name: K, expression: COUNT(*)}]}]"
    )
    assert len(answer("models", "load", "--dry-run", str(models))[0]["changes"]) > 0
    assert answer("models", "load", str(models))[0]["new"] == ["M"]
    assert answer("models", "delete", "M") == [{"model": "M", "kpis": ["K"], "values": 0, "disabled_subscriptions": []}]
    chains = tmp_path / "chains.yaml"
    chains.write_text("chains: [{name: c, dag: {nodes: [{id: a, type: print, cfg: {message: hi}}]}}]")
    assert answer("chains", "load", str(chains)) == [{"change": "new", "kind": "chain", "name": "c"}]
    run_id = run_platform("chains", "start", "c")[1].strip()
    assert answer("chains", "stop", run_id) == [{"run_id": run_id, "status": "STOPPING"}]
    # on stderr it is told that nobody is there to execute it
    state = json.loads(run_platform("chains", "retry", run_id, "a", "--json")[1])
    assert (state["node_id"], state["attempt"]) == ("a", 1)
    rebuilt = json.loads(run_platform("lineage", "rebuild", "--tenant", "7", "--json")[1])
    assert rebuilt == {"events": 0, "removed": 0, "oldest_event": None}


def test_how_many_a_command_changed_is_json_too(
    run_platform: RunPlatform, answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [run_platform("keys", "issue", "spark", "--scopes", "run:read")[1].split("_")[1] for _ in range(2)]
    (revoked,) = answer("keys", "revoke", "spark")
    assert sorted(revoked["revoked"]) == sorted(ids)
    assert answer("keys", "revoke", "spark") == [{"revoked": []}]
    answer("registry", "load", "preset:pubmed")
    assert answer("ingest", "signal", "pubmed", "search", "40000001", "40000002") == [{"accepted": 2}]
    assert answer("ingest", "execute", "--once") == [{"ended": 0}]
    monkeypatch.setattr(Executor, "serve", lambda _: pytest.fail("it goes on for ever, and no JSON comes"))
    assert "--json needs --once" in run_platform("ingest", "execute", "--json")[2]
    engine = open_engine(f"sqlite:///{tmp_path}/home/platform.db")
    dead = [_dead_letter(number) for number in (1, 2, 3)]
    transact(engine, lambda connection: connection.execute(insert(metrics_webhook_delivery), dead))
    engine.dispose()
    assert answer("webhooks", "redeliver", "1") == [{"redelivered": 1}]
    assert answer("webhooks", "redeliver", "--all-dead") == [{"redelivered": 2}]
    answer("tenants", "add", "7", "acme", "Acme")
    monkeypatch.setattr(retention, "prune_graph", lambda *_, **__: 5)
    assert answer("lineage", "prune") == [{"removed": 5}]


def _dead_letter(number: int) -> dict[str, Any]:
    return {
        "webhook_id": f"msg_{number}",
        "task_id": number,
        "group_hash": "0" * 64,
        "model_id": "M",
        "op_time": "20260101",
        "callback_url": "https://example.com/hook",
        "subscription_ids": [],
        "retry_num": 0,
        "body": "{}",
        "event_time": datetime.now(UTC),
        "status": DEAD,
    }
