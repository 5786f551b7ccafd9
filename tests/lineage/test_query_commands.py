"""`platform lineage search|upstream|downstream|runs`, as people type them, and what becomes of hostile names."""

import json
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from platform_defs.access.tenants import Tenant, add_tenant
from platform_defs.cli import main
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.lineage.query import runs as runs_module
from platform_defs.lineage.query.drawing import draw
from platform_defs.lineage.query.names import Asset
from platform_defs.lineage.query.walk import Step, Walk
from platform_defs.store import migrate
from platform_defs.store.engine import open_engine
from tests.lineage.test_queries import SHOP, Shop, ran

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    home = tmp_path_factory.mktemp("home")
    engine = open_engine(f"sqlite:///{home}/platform.db")
    migrate.upgrade(engine)
    made = Shop(engine, EmbeddedGraph.on(engine))
    add_tenant(engine, made.tenant)
    made.post(ran("stage", ["raw.orders"], ["staging.orders"]), ran("mart", ["staging.orders"], ["mart.sales"]))
    yield made
    made.close()
    engine.dispose()


@pytest.fixture
def run(shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit code, stdout and stderr of `platform lineage …`."""
    monkeypatch.setenv("PLATFORM_HOME", str(Path(str(shop.engine.url.database)).parent))

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["platform", "lineage", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        return int(ended.value.code or 0), written.out, written.err

    return command


def test_search_lists_tables_and_says_if_there_are_none_or_more(run: Run) -> None:
    code, out, err = run("search", "orders")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["kind", "name", "namespace"],
        ["table", "raw.orders", SHOP],
        ["table", "staging.orders", SHOP],
    ]
    assert run("search", "nothing") == (0, "", "no table or column has 'nothing' in its name\n")
    assert run("search", "orders", "--limit", "1")[2].startswith("there are more than 1;")
    assert run("search", "orders", "--json") == run("search", "orders", "--format", "json")
    assert json.loads(run("search", "sales", "--json")[1]) == {"kind": "table", "name": "mart.sales", "namespace": SHOP}


def test_the_lineage_is_a_tree_and_the_same_as_json_mermaid_and_dot(run: Run) -> None:
    assert run("upstream", "sales")[1].splitlines() == [
        f"mart.sales  [{SHOP}]",
        "└── staging.orders  by etl/mart",
        "    └── raw.orders  by etl/stage",
    ]
    assert run("downstream", "raw.orders", "--depth", "1")[1].splitlines()[1:] == [
        "└── staging.orders  by etl/stage",
        "    └── … (more with a greater --depth)",
    ]
    found = json.loads(run("upstream", "sales", "--format", "json")[1])
    assert [asset["name"] for asset in found["assets"]] == ["mart.sales", "staging.orders", "raw.orders"]
    edges = {(edge["from"]["name"], edge["to"]["name"], edge["by"]) for edge in found["edges"]}
    assert edges == {("raw.orders", "staging.orders", "etl/stage"), ("staging.orders", "mart.sales", "etl/mart")}
    assert run("upstream", "sales", "--format", "mermaid")[1].splitlines()[:2] == [
        "flowchart LR",
        f'  n0["mart.sales<br>{SHOP}"]',
    ]
    assert '  n1 -> n0 [label="etl/mart"];' in run("upstream", "sales", "--format", "dot")[1].splitlines()
    assert not re.search(r"\b(table|column|sql):[0-9a-f]", "".join(run("upstream", "sales", "--json")[1]))


def test_an_unknown_or_ambiguous_name_says_what_to_do(run: Run) -> None:
    code, out, err = run("upstream", "order")
    assert (code, out) == (1, "")
    assert err == "platform: no table or column is called 'order'; `platform lineage search TEXT` finds some\n"
    code, out, err = run("runs", "orders")
    assert (code, out) == (1, "")
    assert err.splitlines()[0].startswith("platform: 'orders' could mean 2 of them: say more of the name")
    assert err.splitlines()[1:] == [f"  raw.orders  [{SHOP}]", f"  staging.orders  [{SHOP}]"]


def test_runs_are_a_table_under_headers(run: Run) -> None:
    header, line = run("runs", "mart.sales")[1].splitlines()
    assert header.split()[:3] == ["began", "ended", "state"]
    assert {"complete", "written", "etl/mart"} <= set(line.split())
    assert json.loads(run("runs", "mart.sales", "--json")[1])["wrote"] is True


def test_runs_say_so_if_there_may_be_more_than_is_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("runs", "mart.sales")[2] == ""
    monkeypatch.setattr(runs_module, "EVENTS_A_PAGE", 1)
    monkeypatch.setattr(runs_module, "MAX_PAGES", 1)
    more = "not all events of its jobs were looked at; there may be more runs, and more to say of these\n"
    assert run("runs", "mart.sales")[2] == more


@pytest.mark.parametrize(
    "command", [("graph",), ("search", "x"), ("upstream", "x"), ("downstream", "x"), ("runs", "x"), ("rebuild",)]
)
def test_an_unknown_tenant_is_an_error_and_with_several_one_must_be_named(
    run: Run, shop: Shop, command: tuple[str, ...]
) -> None:
    code, out, err = run(*command, "--tenant", "404")
    assert (code, out) == (1, "")
    assert err.startswith(
        f"platform: --tenant: tenant 404 is not on record; known: {shop.tenant.id} ({shop.tenant.code})"
    )
    if command == ("rebuild",):
        assert run(*command)[0] == 2  # it removes things: the tenant is always said
        return
    if command == ("graph",):
        assert "mart.sales" in run(*command)[1]
    add_tenant(shop.engine, Tenant(9, "nine", "Nine"))
    code, out, err = run(*command)
    assert (code, out) == (1, "")
    assert err.startswith("platform: --tenant: name a tenant by its id; known: 9 (nine), ")
    with shop.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM tenants WHERE tenant_id = 9")


HOSTILE = [
    'a"]; click n0 call alert(1); x["',
    "a`b`|c{d}(e)[f]<script>alert(1)</script>&quot;#quot;",
    "two\nlines\r\x1b[2J\x1b]0;title\x07",
    "ends with \\",
    'quote " and \\" both',
    "\u202eright to left \u2028 line separator",
    "end\nsubgraph\n-->",
    "%% comment ---",
]


def hostile_walk() -> Walk:
    root = Asset("table:0", "table", HOSTILE[0], HOSTILE[1])
    assets = {"table:0": root} | {
        f"table:{at}": Asset(f"table:{at}", "table", name, name) for at, name in enumerate(HOSTILE[1:], 1)
    }
    steps = [Step("table:0", f"table:{at}", name) for at, name in enumerate(HOSTILE[1:], 1)]
    return Walk(root, True, assets, [*steps, Step("table:1", None, HOSTILE[0]), Step("table:2", "table:0", "")])


def test_hostile_names_stay_labels_in_every_drawing() -> None:
    found = hostile_walk()
    names = len(found.assets)
    tree = draw(found, "tree").splitlines()
    assert len(tree) == 1 + len(found.steps)
    assert all(line.isprintable() for line in tree)
    mermaid = draw(found, "mermaid").splitlines()
    text = r'"(?:[\w ./:-]|#\d+;|<br>)*"'
    node, edge = rf"  [nj]\d+\[{text}\]", rf"  [nj]\d+ -->(?:\|{text}\|)? [nj]\d+"
    assert mermaid[0] == "flowchart LR"
    assert [line for line in mermaid[1:] if not re.fullmatch(rf"{node}|{edge}|  style n0 stroke-width:3px", line)] == []
    dot = draw(found, "dot").splitlines()
    quoted = r'"(?:[^"\\]|\\["\\n])*"'
    known = rf"  [nj]\d+(?: -> [nj]\d+)?(?: \[label={quoted}(?: penwidth=3)?\])?;"
    assert [line for line in dot[2:-1] if not re.fullmatch(known, line)] == []
    assert len(dot) - 3 == names + len(found.steps) + 1  # and the job beyond which is nothing
    assert [asset["name"] for asset in json.loads(draw(found, "json"))["assets"]] == HOSTILE


def test_an_event_with_hostile_names_is_searched_and_drawn_from_the_store(run: Run, shop: Shop) -> None:
    name = f'{uuid.uuid4().hex}"\x1b[31m\n]'
    shop.post(ran('jo"b\x1b', ["raw.hostile"], [name]))
    out = run("downstream", "raw.hostile")[1]
    assert out.count("\n") == 2
    assert out.replace("\n", "").isprintable()
    listed = run("search", name[:32])[1]
    assert listed.replace("\n", "").isprintable()
    assert run("upstream", name)[0] == 0
