"""What is wrong with a DAG is told at once, with the node and the field."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_defs.chains.errors import InvalidChain
from platform_defs.chains.nodes.catalogue import node_types
from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.validation import MAX_NODES, read_dag
from tests.chains.making import DIAMOND, LINE, dag, node


def problems(content: Any, types: NodeTypes | None = None) -> tuple[str, ...]:
    try:
        read_dag(content, types)
    except InvalidChain as error:
        return error.problems
    return ()


@pytest.mark.parametrize("content", [LINE, DIAMOND, json.dumps(LINE), dag(node("a", "a.b-c_1"), node("a.b-c_1"))])
def test_a_good_dag_is_read_from_an_object_and_from_its_text(content: Any, types: NodeTypes) -> None:
    assert problems(content, types) == ()
    assert read_dag(content, types) == (json.loads(content) if isinstance(content, str) else content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"nodes": []}, "dag must have nodes"),
        ({}, "dag must have nodes"),
        ({"nodes": None}, "dag must have nodes"),
        ({"nodes": {}}, "nodes: expected a list of nodes, got an object"),
        ([], "dagJson: expected a JSON object with nodes, got a list"),
        ("{", "dagJson: expected valid JSON; line 1 column 2"),
        ("[" * 100_000, "dagJson: expected JSON nested at most 90 levels deep"),
        ('{"nodes": [NaN]}', "dagJson: expected finite numbers"),
        ('{"nodes": [1e999]}', "dagJson: expected finite numbers"),
        ('{"nodes": ["\\ud800"]}', "dagJson: expected text in Unicode"),
        ('{"nodes": [' + "9" * 30 + "]}", "dagJson: expected whole numbers of at most 64 bits"),
        ('{"nodes": [' + "9" * 5000 + "]}", "dagJson: expected valid JSON; a number is too long"),
        (dag(node("a"), job="x" * 129), "job: expected a name of at most 128 characters"),
        ({"nodes": [7]}, "nodes[0]: expected an object, got a number"),
        (dag(node("")), "nodes[0]: id: expected 1 to 255 letters"),
        (dag(node("a/b")), "nodes[0]: id: expected 1 to 255 letters"),
        (dag(node("a:retry")), "got 'a:retry'"),
        (dag(node("-a")), "beginning with a letter"),
        (dag({"type": "print"}), "nodes[0]: id: expected"),
        (dag(node("a"), node("a")), "node a: id: expected a different id for every node, got this one 2 times"),
        (dag(node("a", type="prnt")), "node a: type: expected one of "),
        (dag(node("a", type=None)), "node a: type: expected the name of a node type, or a jobId in its place"),
        (dag(node("a", jobId="j")), "node a: type: expected none, because the job that jobId names has it"),
        (dag({"id": "a", "jobId": 7}), "node a: jobId: expected the id of a job, got 7"),
        (dag(node("a", cfg=[1])), "node a: cfg: expected an object, got a list"),
        (dag(node("a", "nobody")), "node a: dependsOn: expected ids of nodes of this dag, got 'nobody'"),
        (dag(node("a", dependsOn="b")), "node a: dependsOn: expected a list of node ids, got 'b'"),
        (dag(node("a", "a")), "dag must not have a cycle, got a -> a"),
        (dag(node("a", "b"), node("b", "c"), node("c", "a")), "dag must not have a cycle, got "),
        (dag(node("a", retry=3)), "node a: retry: expected an object, got a number"),
        (dag(node("a", retry={"maxAttempts": 0})), "node a: retry.maxAttempts: expected a whole number from 1 to 100"),
        (dag(node("a", retry={"maxAttempts": True})), "retry.maxAttempts"),
        (dag(node("a", retry={"backoffMillis": -1})), "node a: retry.backoffMillis: expected a whole number from 0"),
        (dag(node("a", retry={"backoffMultiplier": 0.5})), "retry.backoffMultiplier: expected a number from 1 to 10"),
        (dag(node("a", retry={"maxAttempts": 60})), "node a: retry: expected at most 604800 seconds between"),
        (dag(node("a", timeoutSeconds=0)), "node a: timeoutSeconds: expected a number above 0"),
        (dag({"id": "a", "type": "print", "deps": []}), "node a: 'deps': expected dependsOn, which looks like"),
        (dag({"id": "a", "type": "print", "config": {}}), "node a: 'config': expected cfg"),
        (dag(node("a"), Nodes=[]), "'Nodes': expected nodes"),
        (dag(node("a", cfg={"mesage": "x"})), "node a: cfg.mesage: "),
        (dag(node("a", cfg={"message": "${params."})), "node a: cfg"),
        (dag(node("a", cfg={"message": "${nodes.b.artifact}"}), node("b")), "node a: cfg refers to the node b, which"),
        (dag(node("a", cfg={"message": "env:PLATFORM_DB_URL"})), "node a: cfg.message: chains may not refer to env:"),
        (dag(node("a"), triggers=[{"cron": "nope"}]), "triggers[0].cron: "),
        (dag(node("a", cfg={"message": "x" * 2**22})), "dagJson: expected at most 4194304 bytes of JSON"),
    ],
)
def test_each_problem_names_its_node_and_field(content: Any, problem: str, types: NodeTypes) -> None:
    found = problems(content, types)
    assert any(problem in one for one in found), found


def test_all_problems_are_told_at_once(types: NodeTypes) -> None:
    wrong = dag(
        node("a", "b", type="x"), node("b", "a", retry={"maxAttempts": 0, "backoffMillis": 1.5}), node("c", "?")
    )
    found = problems(wrong, types)
    assert len(found) == 5, found


def test_a_reference_is_told_beside_other_problems_of_the_cfgs(types: NodeTypes) -> None:
    reference = {"message": "${nodes.a.artifact}"}
    wrong = dag(node("a", type="http", cfg={}), node("b", cfg=reference), node("c", type="?"))
    found = problems(wrong, types)
    assert [problem[:7] for problem in found] == ["node a:", "node c:", "node b:"], found


def test_notes_of_other_programs_stay_in_the_dag(types: NodeTypes) -> None:
    noted = dag(node("a", name="A", description="x", x=1, y=2, label="l", position={}, tags=[]), ui={}, name="n")
    assert read_dag(noted, types) == noted


def test_a_dag_has_at_most_2000_nodes(types: NodeTypes) -> None:
    most = dag(node("n0"), *(node(f"n{i}", f"n{i - 1}") for i in range(1, MAX_NODES)))
    assert problems(most, types) == ()
    assert problems(dag(*most["nodes"], node("more")), types) == ("dag must have at most 2000 nodes, got 2001",)
    circle = dag(node("n0", "n1999"), *most["nodes"][1:])
    assert len(problems(circle, types)) == 1
    assert len(problems(circle, types)[0]) < 400


def test_of_thousands_of_problems_some_are_shown(types: NodeTypes) -> None:
    found = problems(dag(*(node(f"n{i}", type="?") for i in range(1000))), types)
    assert len(found) == 51
    assert found[-1] == "and 950 more problems"


WORDS = ["a", "b", "print", "http", "sql", "chain", "${params.x}", "${nodes.a.artifact}", "${", "env:HOME", "* * * * *"]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["nodes", "id", "type", "cfg", "retry", "dependsOn", "maxAttempts", "jobId", "triggers", "cron"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


nearly_a_dag = st.fixed_dictionaries(
    {
        "nodes": st.lists(
            st.fixed_dictionaries(
                {"id": st.sampled_from("abc"), "type": st.sampled_from(sorted(node_types().by_name)), "cfg": anything},
                optional={"dependsOn": st.lists(st.sampled_from("abc"), max_size=2), "retry": anything},
            ),
            max_size=3,
        )
    },
    optional={"triggers": st.lists(st.dictionaries(st.sampled_from(["cron", "table", "zone", "params"]), anything))},
)


@given(anything | nearly_a_dag)
def test_whatever_is_sent_is_read_or_refused_with_lines(content: Any) -> None:
    for one in (*problems(content), *problems(content, node_types())):
        assert one
        assert "\n" not in one
