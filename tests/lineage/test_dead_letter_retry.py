"""Retrying dead letters: with the rights of the source that sent the event, never with more."""

import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from platform_defs.access.principal import Principal, SourceType
from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.cli import main
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.graph.errors import InvalidGraphValue
from platform_defs.graph.port import Graph
from platform_defs.graph.text import graph_lines
from platform_defs.lineage.intake import dead_letters
from platform_defs.lineage.intake.dead_letters import LetterStatus, Refusal
from platform_defs.lineage.sink.commit import ParallelCommitter
from platform_defs.lineage.sink.metrics import SinkMetrics
from platform_defs.lineage.upkeep.recovery import recover
from platform_defs.settings import Settings
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from tests.lineage_events import create_table

ACME, OTHER = Tenant(7, "acme", "Acme"), Tenant(8, "other", "Other")
# a source whose gateway assertion names a tenant that no event has recorded yet
SOURCE = Principal("assertion", "gateway", frozenset(), SourceType.GRAVITINO, ACME)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setenv("PLATFORM_HOME", str(tmp_path))
    opened = open_engine(Settings.load().database_url)
    migrate.upgrade(opened)
    add_tenant(opened, OTHER)
    yield opened
    opened.dispose()


def retry(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["platform", "lineage", "dead-letters", "retry", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def refused_event_of(engine: Engine, tenant: Tenant) -> None:
    event = create_table((tenant.id, tenant.code, tenant.name), "sales.planted")
    dead_letters.store_refusals(
        engine, SOURCE, [Refusal(json.dumps(event), "tenantId: the credential belongs to another")]
    )


def lines(engine: Engine, tenant: Tenant) -> list[str]:
    return list(graph_lines(EmbeddedGraph.on(engine).for_tenant(tenant.id)))


def test_a_source_whose_tenant_is_not_on_record_writes_to_no_other_tenant(
    home: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused_event_of(home, OTHER)
    assert retry(monkeypatch, "--all") == 1
    out = capsys.readouterr().out
    assert "tenantId: the source's tenant 7 is not on record" in out
    assert out.count("\n") == 1
    assert lines(home, OTHER) == []
    (letter,) = dead_letters.list_letters(home)
    assert (letter.status, letter.retry_count) == (LetterStatus.OPEN, 1)
    add_tenant(home, ACME)
    assert retry(monkeypatch, "--all") == 1
    assert lines(home, OTHER) == []


def test_once_its_tenant_is_on_record_the_source_writes_to_it(home: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    refused_event_of(home, ACME)
    assert retry(monkeypatch, "--all") == 1
    add_tenant(home, ACME)
    assert retry(monkeypatch, "--all") == 0
    assert any("planted" in line for line in lines(home, ACME))
    assert dead_letters.list_letters(home) == []


@pytest.mark.parametrize("id", ["5", "99999999999999999999999"])
def test_a_letter_that_does_not_exist_is_one_line(
    home: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], id: str
) -> None:
    assert retry(monkeypatch, id) == 1
    shown = "`platform lineage dead-letters list --all` shows them"
    assert capsys.readouterr().err == f"platform: there is no dead letter {id}; {shown}\n"


def test_with_nothing_to_try_again_that_is_said(
    home: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert retry(monkeypatch, "--all") == 0
    assert capsys.readouterr().err == "no refused event is open\n"


def test_an_event_that_the_graph_refuses_again_leaves_no_row_of_which_the_recovery_makes_a_second_letter(
    home: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_event_of(home, ACME)
    add_tenant(home, ACME)

    def refuse(*_: object) -> None:
        raise InvalidGraphValue("props.name", "expected at most so many bytes")

    def open_parallel(engine: Engine, graph: Graph) -> ParallelCommitter:
        return ParallelCommitter(engine, graph, SinkMetrics(CollectorRegistry()))

    monkeypatch.setattr("platform_defs.lineage.sink.commit.apply_events", refuse)
    monkeypatch.setattr("platform_defs.lineage.upkeep.recovery.apply_events", refuse)
    monkeypatch.setattr("platform_defs.lineage.intake.dead_letter_retry.open_committer", open_parallel)
    assert retry(monkeypatch, "--all") == 1
    recover(home, EmbeddedGraph.on(home), patience=timedelta(seconds=-60))
    (letter,) = dead_letters.list_letters(home)
    assert letter.retry_count == 1
    assert "props.name" in letter.reason
