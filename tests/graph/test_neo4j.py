"""What only Neo4j has: constraints, full-text and vector indexes, and a server that may not answer."""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import neo4j as driver_package
import pytest
from sqlalchemy import create_engine

from platform_defs.errors import GraphError
from platform_defs.graph import cypher
from platform_defs.graph.errors import GraphInterrupted, GraphTooSlow, GraphUnavailable
from platform_defs.graph.model import Edge, EdgeKey, Node, UpsertEdges, UpsertNodes
from platform_defs.graph.neo4j import Neo4jGraph, Timeouts
from platform_defs.graph.neo4j_store import Neo4jStore
from platform_defs.graph.open import open_graph
from platform_defs.graph.port import GraphTransaction
from platform_defs.graph.vocabulary import KNOWLEDGE_KINDS
from platform_defs.settings import Settings
from tests.graph.conftest import UNHURRIED, random_tenant
from tests.needs import ROOT, require
from tests.ports import free_ports
from tests.waiting import PATIENCE_S, until

SEED_CONSTRAINTS = {
    "tenant_id_uk",
    "tenant_code_uk",
    *(
        f"{kind}_tenant_id_uk"
        for kind in (
            *("catalog", "schema", "table", "column", "sql", "atomic_metric", "derived_metric", "composite_metric"),
            *("wordroot", "modifier", "unit", "valuedomain", "tag"),
        )
    ),
}
QUICK = Timeouts(connect=0.5, acquire=0.5, transaction=1, retry=0.5)
# Only its transactions are impatient: a busy server may need longer for a connection.
IMPATIENT = replace(UNHURRIED, transaction=1.0)


@pytest.fixture
def session(neo4j: Neo4jGraph) -> Iterator[driver_package.Session]:
    with driver_package.GraphDatabase.driver(require("neo4j")) as driver, driver.session() as session:
        yield session


@pytest.mark.needs("neo4j")
def test_the_constraints_of_the_seed_exist(session: driver_package.Session) -> None:
    rows = session.run("SHOW CONSTRAINTS YIELD name, type, labelsOrTypes, properties").data()
    found = {row["name"]: (row["type"], *row["labelsOrTypes"], *row["properties"]) for row in rows}
    assert set(found) >= SEED_CONSTRAINTS
    assert found["tenant_code_uk"] == ("UNIQUENESS", "Tenant", "code")
    assert found["atomic_metric_tenant_id_uk"] == ("UNIQUENESS", "AtomicMetric", "tenantId", "id")
    assert found["knowledge_tenant_id_uk"] == ("UNIQUENESS", "Knowledge", "tenantId", "id")


@pytest.mark.needs("neo4j")
def test_tables_and_columns_are_indexed_by_the_names_that_people_write(session: driver_package.Session) -> None:
    rows = session.run("SHOW RANGE INDEXES YIELD labelsOrTypes, properties, state WHERE state = 'ONLINE'").data()
    found = {(*(row["labelsOrTypes"] or ()), *(row["properties"] or ())) for row in rows}
    for label in ("Table", "Column"):
        assert {(label, "tenantId", "qualifiedName"), (label, "tenantId", "namespace")} <= found


@pytest.mark.needs("neo4j")
def test_text_is_found_by_the_full_text_indexes(neo4j: Neo4jGraph, session: driver_package.Session) -> None:
    rows = session.run("SHOW FULLTEXT INDEXES YIELD name, labelsOrTypes, properties, state").data()
    found = {row["name"]: (row["labelsOrTypes"], set(row["properties"]), row["state"]) for row in rows}
    words = {"name", "description", "summary", "content", "tags", "code", "items"}
    assert found["knowledge_fulltext"] == (["Knowledge"], words, "ONLINE")
    assert found["sql_fulltext"] == (["SQL"], {"content", "summary", "tags"}, "ONLINE")
    store = neo4j.for_tenant(random_tenant())
    word = f"w{store.tenant}"
    try:
        store.apply([UpsertNodes([Node("q", {"SQL"}, {"content": f"select {word}", "tags": ["x", "y"]})])])
        session.run("CALL db.index.fulltext.awaitEventuallyConsistentIndexRefresh()").consume()
        query = (
            "CALL db.index.fulltext.queryNodes($index, $word) YIELD node RETURN node.id AS id, node.tenantId AS tenant"
        )
        for index in found:
            assert session.run(query, index=index, word=word).data() == [{"id": "q", "tenant": store.tenant}]
    finally:
        store.clear()


@pytest.mark.needs("neo4j")
def test_nodes_carry_the_tenant_and_the_times_of_creation_and_update(
    neo4j: Neo4jGraph, session: driver_package.Session
) -> None:
    store = neo4j.for_tenant(random_tenant())
    own = str(store.tenant)
    try:
        store.apply([UpsertNodes([Node(own, {"Tenant"}, {"code": own}), Node("t", {"Table"})])])
        query = (
            "MATCH (n {tenantId: $tenant}) RETURN n.id AS id, n.createdAt <= n.updatedAt AS timed ORDER BY timed, id"
        )
        rows = session.run(query, tenant=store.tenant).data()
        assert sorted(rows, key=str) == sorted(
            [{"id": "t", "timed": True}, {"id": store.tenant, "timed": True}], key=str
        )
    finally:
        store.clear()


@pytest.mark.needs("neo4j")
def test_each_vector_label_has_an_index_that_finds_the_nearest(
    neo4j: Neo4jGraph, session: driver_package.Session
) -> None:
    names = [neo4j.ensure_vector_index(2, similarity).lower() for similarity in ("cosine", "euclidean")]
    rows = session.run("SHOW VECTOR INDEXES YIELD name, labelsOrTypes, properties, options").data()
    found = {row["name"]: row for row in rows}
    for name, similarity in zip(names, ("cosine", "euclidean"), strict=True):
        assert found[name]["labelsOrTypes"] == [f"Knowledge_2_{similarity}"]
        assert found[name]["properties"] == ["embedding"]
        config = found[name]["options"]["indexConfig"]
        assert config["vector.dimensions"] == 2
        assert config["vector.similarity_function"].lower() == similarity
    store = neo4j.for_tenant(random_tenant())
    try:
        vectors = {"near": [1.0, 0.1], "far": [-1.0, 0.0]}
        store.apply(
            [
                UpsertNodes(
                    [Node(id, {"SQL", "Knowledge_2_cosine"}, {"embedding": vector}) for id, vector in vectors.items()]
                )
            ]
        )
        query = "CALL db.index.vector.queryNodes($index, 100, [1.0, 0.0]) YIELD node, score RETURN node, score"
        nodes = [row["node"] for row in session.run(query, index=names[0]).data()]
        assert [node["id"] for node in nodes if node["tenantId"] == store.tenant] == ["near", "far"]
    finally:
        store.clear()


@pytest.mark.needs("neo4j")
def test_two_processes_may_create_the_schema_at_once(session: driver_package.Session) -> None:
    """A dimension that no other test uses, so that both really create something."""
    name = "knowledge_4093_euclidean"
    session.run(f"DROP INDEX {name} IF EXISTS").consume()
    program = (
        "import sys; from platform_defs.errors import GraphError; from platform_defs.graph.neo4j import Neo4jGraph\n"
        "from tests.graph.conftest import UNHURRIED; from tests.waiting import until\n"
        "graph = Neo4jGraph(sys.argv[1], timeouts=UNHURRIED)\n"
        "def is_there():\n"
        "    try: graph.ping()\n"
        "    except GraphError: return False\n"
        "    return True\n"
        "until('the server to answer', is_there); print('ready', flush=True); sys.stdin.readline()\n"
        "graph.ensure_schema(); graph.ensure_vector_index(4093, 'euclidean'); graph.close()"
    )

    def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    with ExitStack() as stack:
        stack.callback(lambda: session.run(f"DROP INDEX {name} IF EXISTS").consume())
        processes = []
        for _ in range(2):
            process = subprocess.Popen(
                [sys.executable, "-c", program, require("neo4j")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            )  # fmt: skip
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        for process in processes:
            assert process.stdout
            assert process.stdout.readline() == "ready\n", ended(process)
        for process in processes:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [ended(process) for process in processes] == [(0, "", "")] * 2
        found = session.run("SHOW INDEXES YIELD name WHERE name = $name RETURN name", name=name).data()
        assert len(found) == 1


def test_a_server_that_is_not_there_is_one_line_within_the_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"bolt://127.0.0.1:{free_ports(1)[0]}"
    monkeypatch.setenv("PLATFORM_GRAPH_URL", url)
    monkeypatch.setenv("PLATFORM_GRAPH_USER", "neo4j")
    monkeypatch.setenv("PLATFORM_GRAPH_PASSWORD", "very-secret")
    engine = create_engine("sqlite://")
    graph = open_graph(Settings.load(), engine)
    try:
        for attempt in (graph.ping, lambda: graph.for_tenant(1).apply([UpsertNodes([Node("t", {"Table"})])])):
            with pytest.raises(GraphUnavailable, match=re.escape(f"Neo4j at {url} does not answer")) as caught:
                attempt()
            assert "\n" not in str(caught.value)
            assert "very-secret" not in str(caught.value)
    finally:
        graph.close()
        engine.dispose()


def test_a_server_that_accepts_and_stays_silent_for_ever_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        graph = Neo4jGraph(f"bolt://127.0.0.1:{silent.getsockname()[1]}", timeouts=QUICK)
        with pytest.raises(GraphUnavailable):
            graph.for_tenant(1).nodes(["t"])
        graph.close()


@pytest.mark.needs("neo4j")
def test_a_statement_that_waits_for_a_lock_ends_with_its_transaction_timeout(
    neo4j: Neo4jGraph, session: driver_package.Session
) -> None:
    store = neo4j.for_tenant(random_tenant())
    store.apply([UpsertNodes([Node("t", {"Table"})])])
    impatient = Neo4jGraph(require("neo4j"), timeouts=IMPATIENT)
    try:
        with session.begin_transaction() as holder:
            holder.run("MATCH (n:Table {tenantId: $tenant}) SET n.held = true", tenant=store.tenant).consume()
            with pytest.raises(GraphInterrupted):
                impatient.for_tenant(store.tenant).apply([UpsertNodes([Node("t", {"Table"}, {"x": 1})])])
            holder.rollback()
        assert store.nodes(["t"])["t"].props == {}
    finally:
        impatient.close()
        store.clear()


ENDLESS = "UNWIND range(1, 1000000000) AS a UNWIND range(1, 1000000000) AS b WITH b WHERE b = -$tenant RETURN count(b)"


@pytest.mark.needs("neo4j")
def test_a_transaction_that_takes_too_long_by_itself_was_too_slow(neo4j: Neo4jGraph) -> None:
    impatient = Neo4jGraph(require("neo4j"), timeouts=IMPATIENT)
    try:
        with pytest.raises(GraphTooSlow):
            impatient.write(lambda transaction: transaction.run(ENDLESS, tenant=random_tenant()).consume())
    finally:
        impatient.close()


@pytest.mark.needs("neo4j")
def test_a_transaction_that_somebody_ends_was_not_too_slow(neo4j: Neo4jGraph, session: driver_package.Session) -> None:
    tenant = random_tenant()
    patient = Neo4jGraph(require("neo4j"), timeouts=UNHURRIED)

    def end() -> bool:
        mine = "SHOW TRANSACTIONS YIELD transactionId, parameters, currentQuery WHERE parameters.tenant = $tenant"
        found = session.run(f"{mine} AND currentQuery = $text", tenant=tenant, text=ENDLESS).data()
        for row in found:
            session.run(f"TERMINATE TRANSACTIONS '{row['transactionId']}'").consume()
        return bool(found)

    try:
        with ThreadPoolExecutor(1) as pool:
            write = partial(patient.write, lambda transaction: transaction.run(ENDLESS, tenant=tenant).consume())
            written = pool.submit(write)
            until("the transaction", end)
            with pytest.raises(GraphInterrupted):
                written.result(PATIENCE_S)
    finally:
        patient.close()


def test_a_url_that_the_driver_cannot_use_is_one_line() -> None:
    with pytest.raises(GraphError, match="Neo4j at") as caught:
        Neo4jGraph("bolt://127.0.0.1:7687/?policy=x")
    assert "\n" not in str(caught.value)


def test_the_schema_holds_every_constraint_of_the_seed() -> None:
    assert SEED_CONSTRAINTS | {"knowledge_tenant_id_uk"} == set(cypher.CONSTRAINTS)


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the statements that are sent, each as often as it is."""
    found: list[str] = []
    execute = Neo4jStore._execute

    def note(store: Neo4jStore, tx: Any, template: str, names: Any, **parameters: Any) -> Any:
        found.append(template.format(**names))
        return execute(store, tx, template, names, **parameters)

    monkeypatch.setattr(Neo4jStore, "_execute", note)
    return found


@pytest.mark.needs("neo4j")
def test_edges_of_whatever_types_are_read_by_one_text(neo4j: Neo4jGraph, texts: list[str]) -> None:
    store = neo4j.for_tenant(random_tenant())
    links = [EdgeKey(type, "a", "b") for type in ("INPUT_OF", "GONE_INPUT_OF", "DERIVES_FROM", "HAS_TAG")]
    store.apply([UpsertNodes([Node("a", {"Table"}), Node("b", {"SQL"})]), UpsertEdges([Edge(*key) for key in links])])
    texts.clear()
    for some in (links[:1], links[1:3], links):
        assert store.edges_by_key(some).keys() == set(some)
    assert len(set(texts)) == 1
    store.clear()


@pytest.mark.needs("neo4j")
def test_nodes_of_all_kinds_are_written_by_one_statement(neo4j: Neo4jGraph, texts: list[str]) -> None:
    """So a server that has just started has little to plan, and a group few round trips."""
    store = neo4j.for_tenant(random_tenant())
    kinds = sorted(KNOWLEDGE_KINDS)
    ids = [f"{kind}:1" for kind in kinds]
    for turn in range(2):
        # the second time every node changes its kind
        wanted = dict(zip(ids, kinds[turn:] + kinds[:turn], strict=True))
        texts.clear()
        store.apply([UpsertNodes([Node(id, {kind}) for id, kind in wanted.items()])])
        assert len(texts) == 1
        assert {id: node.labels - {"Knowledge"} for id, node in store.nodes(ids).items()} == {
            id: {kind} for id, kind in wanted.items()
        }
    store.clear()


@pytest.mark.needs("neo4j")
def test_an_update_sees_the_tenants_node_as_it_is_before_and_after_it_writes(neo4j: Neo4jGraph) -> None:
    store = neo4j.for_tenant(random_tenant())
    id = str(store.tenant)

    def work(transaction: GraphTransaction) -> list[Any]:
        before = transaction.nodes([id, "none"])[id]
        transaction.apply([UpsertNodes([Node(id, {"Tenant"}, {"code": f"c{id}", "name": "new"})])])
        return [before.props, transaction.nodes([id])[id].props]

    assert store.update(work) == [{}, {"code": f"c{id}", "name": "new"}]
    assert store.update(lambda transaction: transaction.nodes([id])[id]).props["name"] == "new"
    store.clear()
