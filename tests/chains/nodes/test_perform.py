"""One attempt: expressions, checks before a node runs, bounds, checkpoints, and errors that a person reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field
from sqlalchemy import Engine

from platform_defs.chains.dag import Dag, Node
from platform_defs.chains.nodes import catalogue
from platform_defs.chains.nodes.attempt_log import LOGGED_CHARACTERS, LONGEST_LINE
from platform_defs.chains.nodes.catalogue import cfg_problems, dag_problems, node_types
from platform_defs.chains.nodes.cfg import NodeCfg
from platform_defs.chains.nodes.port import NodeContext, NodeFailed, NodeResult, NodeStopped, Outcome, SecretNames
from platform_defs.chains.nodes.secrets import AttemptSecrets
from platform_defs.chains.nodes.types.print_node import PrintExecutor
from platform_defs.errors import PlatformError
from tests.chains.nodes.attempts import Bench, open_bench

on_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
on_servers_too = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("mysql", marks=pytest.mark.needs("mysql"))], indirect=True
)


class CallCfg(NodeCfg):
    count: int = Field(1, ge=1)
    text: str = ""
    any: Any = None


class Call:
    """A plug-in whose behaviour the test gives."""

    name = "call"
    cfg_model = CallCfg

    def __init__(self, work: Any = lambda context, cfg: NodeResult()) -> None:
        self.work = work
        self.calls = 0

    def execute(self, context: NodeContext, cfg: CallCfg) -> Outcome:
        self.calls += 1
        outcome: Outcome = self.work(context, cfg)
        return outcome


def calling(engine: Engine, work: Any = lambda context, cfg: NodeResult(), **above: Any) -> tuple[Bench, Call]:
    call = Call(work)
    return open_bench(engine, None, call, above=above), call


@on_servers_too
def test_params_and_artifacts_of_nodes_above_reach_the_node_with_their_types(engine: Engine) -> None:
    bench, _ = calling(
        engine, lambda context, cfg: NodeResult([cfg.count, cfg.text, cfg.any]), a={"n": [3, {"k": "v"}]}
    )
    cfg = {"count": "${params.count}", "text": "batch ${params.day} of ${node.id}", "any": "${nodes.a.artifact.n[1]}"}
    assert bench.artifact("call", cfg, {"count": 7, "day": "20251219"}) == [7, "batch 20251219 of n", {"k": "v"}]


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"text": "${params.missing}"}, "cfg /text: expected a value, but params.missing is missing or null"),
        ({"text": "${coalesce(nodes.z.artifact.y, 'x')}"}, "the node z, which has not succeeded"),
        ({"text": "${environ.HOME}"}, "environ.HOME is not known"),
        ({"text": "${nodes.a.secret}"}, "nodes.a.secret is not known"),
        ({"count": "${params.text}"}, "cfg.count: Input should be a valid integer"),
        ({"count": 0}, "cfg.count: Input should be greater than or equal to 1"),
        ({"nothing": 0}, "cfg.nothing: this field is not known"),
    ],
)
@on_sqlite
def test_what_is_wrong_is_an_error_before_the_node_runs(engine: Engine, cfg: dict[str, Any], message: str) -> None:
    bench, call = calling(engine, a=None)
    with pytest.raises(NodeFailed, match=r".") as raised:
        bench.perform("call", cfg, {"text": "word"})
    assert message in str(raised.value)
    assert not raised.value.may_retry
    assert call.calls == 0


def test_problems_that_can_be_known_are_told_when_a_chain_is_saved() -> None:
    types = node_types({"call": Call()})
    problems = cfg_problems(types, "b", "call", {"count": "x", "text": "${up(1)}", "any": "env:PLATFORM_DB_URL"})
    assert len(problems) == 3
    assert all(problem.startswith("node b: cfg") for problem in problems)
    assert cfg_problems(types, "b", "call", {"count": "${params.n}", "any": ["${now()}", "env:CHAIN_X"]}) == []
    refer = {"text": "${nodes.a.artifact.y}"}
    lonely = Dag(
        "t", (Node("a", "call"), Node("b", "call", cfg=refer), Node("c", "call", cfg={"text": "${nodes.z.artifact}"}))
    )
    assert [problem.partition(":")[0] for problem in dag_problems(types, lonely)] == ["node b", "node c"]
    below = Dag("t", (Node("a", "call"), Node("m", "call", ("a",)), Node("b", "call", ("m",), cfg=refer)))
    assert dag_problems(types, below) == []


@pytest.mark.parametrize(
    ("artifact", "message"),
    [("x" * (1024 * 1024), "expected at most 1048576"), ({1, 2}, "is no JSON"), (float("nan"), "is no JSON")],
)
@on_sqlite
def test_artifacts_and_checkpoints_are_json_of_at_most_a_mebibyte(engine: Engine, artifact: Any, message: str) -> None:
    for result in (NodeResult(artifact=artifact), NodeResult(checkpoint=artifact)):
        bench, _ = calling(engine, lambda context, cfg, result=result: result)
        with pytest.raises(NodeFailed, match=message) as raised:
            bench.perform("call", {})
        assert not raised.value.may_retry


@on_sqlite
def test_an_error_is_one_line_that_names_its_kind(engine: Engine) -> None:
    def key_error(context: NodeContext, cfg: CallCfg) -> Outcome:
        raise KeyError("k")

    def sentence(context: NodeContext, cfg: CallCfg) -> Outcome:
        raise PlatformError("the source is gone")

    for work, message in ((key_error, "KeyError: 'k'"), (sentence, "the source is gone")):
        with pytest.raises(NodeFailed) as raised:
            calling(engine, work)[0].perform("call", {})
        assert str(raised.value) == message
        assert raised.value.may_retry


@on_servers_too
def test_a_retry_sees_the_checkpoint_and_an_attempt_that_no_longer_counts_saves_none(engine: Engine) -> None:
    seen: list[Any] = []

    def work(context: NodeContext, cfg: CallCfg) -> Outcome:
        seen.append(context.checkpoint)
        context.save_checkpoint({"page": cfg.count})
        raise NodeFailed("half way")

    bench, _ = calling(engine, work)
    for attempt in (1, 2):
        with pytest.raises(NodeFailed):
            bench.perform("call", {"count": attempt})
        bench.next_attempt()
    bench.set_node(status="SUCCESS")
    with pytest.raises(NodeStopped, match="no longer counts"):
        bench.perform("call", {"count": 9})
    bench.set_node(status="RUNNING")
    with pytest.raises(NodeFailed):
        bench.perform("call", {"count": 4})
    assert seen == [None, {"page": 1}, {"page": 2}, {"page": 2}]


@on_sqlite
def test_an_error_after_the_stop_is_the_stop(engine: Engine) -> None:
    def work(context: NodeContext, cfg: CallCfg) -> Outcome:
        context.stop.set("the run was stopped by ann")
        raise OSError("connection lost")

    with pytest.raises(NodeStopped, match="the run was stopped by ann"):
        calling(engine, work)[0].perform("call", {})


class TestSecrets:
    @on_sqlite
    def test_a_secret_is_read_by_the_attempt_alone_and_masked_everywhere(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CHAIN_TOKEN", "s3cr/et-value")
        revealed = []

        def work(context: NodeContext, cfg: CallCfg) -> Outcome:
            assert cfg.text == "Bearer env:CHAIN_TOKEN"
            value = context.reveal(cfg.text)
            revealed.append(value)
            context.log(f"sent {value}")
            context.save_checkpoint({"s3cr/et-value": value})
            if cfg.count > 1:
                raise ValueError(f"cannot use {value} at ?token=s3cr%2Fet-value")
            return NodeResult({"echo": [value]}, checkpoint=value)

        bench, _ = calling(engine, work)
        outcome = bench.perform("call", {"text": "Bearer env:CHAIN_TOKEN"})
        with pytest.raises(NodeFailed) as raised:
            bench.perform("call", {"text": "Bearer env:CHAIN_TOKEN", "count": 2})
        assert revealed == ["Bearer s3cr/et-value"] * 2
        everything = (
            f"{outcome} {raised.value!r} {raised.value.__context__ if raised.value.__cause__ else ''} {bench.lines}"
        )
        assert "s3cr" not in everything
        assert "***" in str(outcome)
        with bench.engine.connect() as connection:
            stored = connection.exec_driver_sql("SELECT checkpoint_json FROM job_run_checkpoint").scalars().all()
        assert "s3cr" not in str(stored)

    @pytest.mark.parametrize("name", ["PLATFORM_DB_URL", "PLATFORM_CHAIN_X", "HOME", "CHAIN_UNSET"])
    @on_sqlite
    def test_only_variables_that_are_allowed_and_set_can_be_read(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setenv("PLATFORM_DB_URL", "mysql://u:password@h/d")
        bench, _ = calling(engine, lambda context, cfg: NodeResult(context.reveal(cfg.text)))
        with pytest.raises(NodeFailed, match=f"env:{name}") as raised:
            bench.perform("call", {"text": f"env:{name}"})
        assert not raised.value.may_retry

    @on_sqlite
    def test_a_reference_that_comes_out_of_an_expression_is_refused(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CHAIN_TOKEN", "s3cr/et-value")
        bench, call = calling(engine, a={"t": "env:CHAIN_TOKEN"})
        for cfg in (
            {"text": "${nodes.a.artifact.t}"},
            {"any": {"x": "${nodes.a.artifact}"}},
            {"text": "B ${params.t}"},
        ):
            with pytest.raises(NodeFailed, match="written in the chain itself"):
                bench.perform("call", cfg, {"t": "env:CHAIN_TOKEN"})
        assert call.calls == 0


@on_sqlite
def test_print_writes_lines_into_the_log(engine: Engine) -> None:
    bench = open_bench(engine, above={"a": {"rows": 3}})
    assert bench.artifact("print", {"message": "hello ${params.who}\nagain"}, {"who": "world"}) == {
        "message": "hello world\nagain"
    }
    bench.perform("print", {"message": "${nodes.a.artifact}"})
    bench.perform("print", {})
    assert bench.lines == ["hello world", "again", '{"rows":3}']


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["hunter2", "a hunter2 b", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "hunter2"]), inner, max_size=2),
    max_leaves=10,
)


@given(JSON)
def test_no_structure_keeps_a_secret_and_what_has_none_stays_as_it_is(value: Any) -> None:
    secrets = AttemptSecrets(SecretNames(), {"CHAIN_X": "hunter2"})
    assert secrets.mask_json(value) == value
    assert secrets.reveal("env:CHAIN_X") == "hunter2"
    masked = secrets.mask_json(value)
    assert "hunter2" not in json.dumps(masked)
    if "hunter2" not in json.dumps(value):
        assert masked == value


@on_sqlite
def test_a_log_is_bounded_and_a_long_line_is_cut_after_it_was_masked(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAIN_X", "hunter2hunter2")

    def work(context: NodeContext, cfg: CallCfg) -> Outcome:
        secret = context.reveal("env:CHAIN_X")
        context.log("y" * (LONGEST_LINE - 7) + secret)
        for _ in range(1000):
            print("z" * 1000)  # noqa: T201
        return NodeResult()

    bench, _ = calling(engine, work)
    bench.perform("call", {})
    assert bench.lines[0] == "y" * (LONGEST_LINE - 7) + "***"
    assert sum(map(len, bench.lines)) <= LOGGED_CHARACTERS + 2000
    assert bench.lines[-1].startswith("(more than")


def test_packages_bring_node_types_and_a_broken_one_keeps_no_other_from_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "plugged.py").write_text(PLUG_IN)
    info = tmp_path / "plugged-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1\n")
    entries = ("good = plugged:Good", "broken = plugged:nothing", "wrong = plugged:Wrong", "print = plugged:Print")
    (info / "entry_points.txt").write_text("\n".join(["[platform_defs.node_executors]", *entries]))
    monkeypatch.syspath_prepend(str(tmp_path))
    catalogue._plug_ins.cache_clear()
    try:
        types = node_types()
    finally:
        catalogue._plug_ins.cache_clear()
    assert "good" in types
    assert "wrong" not in types
    assert isinstance(types["print"], PrintExecutor)
    assert cfg_problems(types, "n", "good", {"rows": 0}) == ["node n: cfg.rows: Input should be greater than 0"]
    said = caplog.text
    assert "broken = plugged:nothing of platform_defs.node_executors is left out: AttributeError" in said
    assert "wrong = plugged:Wrong" in said
    assert "'print' is the name of a built-in node type" in said


PLUG_IN = """
from pydantic import BaseModel, Field
from platform_defs.chains.nodes.port import NodeResult

class Cfg(BaseModel):
    rows: int = Field(gt=0)

class Good:
    name = "good"
    cfg_model = Cfg
    def execute(self, context, cfg):
        return NodeResult(cfg.rows)

class Wrong:
    name = "wrong"
    cfg_model = None

class Print(Good):
    name = "print"
"""
