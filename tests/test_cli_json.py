"""What a program may read has --json: a walk over all commands, with a reason for each that has none."""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import click

from platform_defs.cli import COMMANDS
from tests.commands.command_line import RunPlatform

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
    "ingest execute": SERVES,
    "ingest replay": IS_JSON,
    "ingest signal": SENTENCE,
    "ingest unblock": SENTENCE,
    "keys issue": ALONE,
    "keys revoke": SENTENCE,
    "lineage graph": IS_JSON,
    "lineage prune": SENTENCE,
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
    "webhooks redeliver": SENTENCE,
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


def test_what_commands_changed_is_json_too(run_platform: RunPlatform, tmp_path: Path) -> None:
    def answer(*arguments: str) -> list[dict[str, object]]:
        code, out, err = run_platform(*arguments, "--json")
        assert (code, err) == (0, ""), err
        return [json.loads(line) for line in out.splitlines()]

    assert answer("tenants", "add", "7", "acme", "Acme") == [{"id": 7, "code": "acme", "name": "Acme", "added": True}]
    assert answer("tenants", "add", "7", "acme", "Acme")[0]["added"] is False
    added = answer("registry", "diff", "preset:crossref")
    assert {change["change"] for change in added} == {"added"}
    assert answer("registry", "load", "preset:crossref") == added
    assert answer("registry", "load", "preset:crossref") == []
    (moved,) = answer("registry", "base-url", "crossref", "http://127.0.0.1:1")
    assert moved["change"] == "changed"
    assert any(column["after"] == "http://127.0.0.1:1" for column in dict(moved["columns"]).values())  # type: ignore[call-overload]
    models = tmp_path / "models.yaml"
    models.write_text(
        "models: [{model_id: M, name: M, depends_on: [T], source: platform,"
        " sql: 'SELECT ${kpis} FROM T', kpis: [{kpi_id: K, name: K, expression: COUNT(*)}]}]"
    )
    assert len(answer("models", "load", "--dry-run", str(models))[0]["changes"]) > 0  # type: ignore[arg-type]
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
