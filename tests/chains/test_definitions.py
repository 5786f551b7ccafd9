"""Chains and jobs as they are stored: names, versions, enabling, pages, the audit, and request keys."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.chains import definitions as chains
from platform_defs.chains import job_definitions as jobs
from platform_defs.chains.errors import Conflict, InvalidChain, NameTaken, Unknown
from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.request_keys import RequestKey
from platform_defs.store.engine import read
from platform_defs.work.definition_versions import read_versions
from tests.chains.making import ACTOR, DIAMOND, LINE, audit_rows, make_chain


def counter(engine: Engine) -> int:
    return read(engine, read_versions).get("chains", 0)


def change(engine: Engine, types: NodeTypes, chain: chains.Chain, **fields: Any) -> chains.Chain:
    values = {"name": chain.name, "description": None, "dag_json": DIAMOND, "version": chain.version, "actor": ACTOR}
    return chains.update_chain(engine, types, chain.chain_id, **(values | fields))


def test_a_chain_is_created_changed_disabled_and_read(engine: Engine, types: NodeTypes) -> None:
    made = make_chain(engine, types, name="订单")
    assert (made.version, made.enabled, made.dag_json) == (1, True, LINE)
    assert chains.get_chain(engine, made.chain_id) == made
    changed = change(engine, types, made, name="orders", description="new")
    assert (changed.version, changed.name, changed.description, changed.dag_json) == (2, "orders", "new", DIAMOND)
    assert changed.updated_at > made.updated_at
    disabled = chains.set_chain_enabled(engine, made.chain_id, False, actor=ACTOR)
    assert (disabled.enabled, disabled.version) == (False, 2)
    assert chains.set_chain_enabled(engine, made.chain_id, False, actor=ACTOR) == disabled
    audit = audit_rows(engine)
    assert [row.action for row in audit] == ["chain.create", "chain.update", "chain.disable"]
    assert {row.actor for row in audit} == {ACTOR}
    assert {row.object_id for row in audit} == {made.chain_id}
    assert audit[0].before_json is None
    assert audit[1].before_json["dag_json"] == LINE
    assert audit[1].after_json["dag_json"] == DIAMOND
    assert (audit[2].before_json["enabled"], audit[2].after_json["enabled"]) == (True, False)


def test_what_definitions_are_built_from_raises_their_counter(engine: Engine, types: NodeTypes) -> None:
    hidden = make_chain(engine, types, name="hidden", enabled=False)
    change(engine, types, hidden)
    assert counter(engine) == 0
    made = make_chain(engine, types)
    assert counter(engine) == 1
    change(engine, types, made)
    assert counter(engine) == 2
    chains.set_chain_enabled(engine, made.chain_id, True, actor=ACTOR)
    assert counter(engine) == 2
    chains.set_chain_enabled(engine, made.chain_id, False, actor=ACTOR)
    assert counter(engine) == 3
    with pytest.raises(Conflict):
        change(engine, types, made)
    assert counter(engine) == 3
    assert [chain.name for chain in read(engine, chains.enabled_chains)] == []


def test_a_name_belongs_to_one_chain(engine: Engine, types: NodeTypes) -> None:
    first, second = make_chain(engine, types), make_chain(engine, types, name="other")
    with pytest.raises(NameTaken, match="chain name already exists: nightly"):
        make_chain(engine, types)
    with pytest.raises(NameTaken):
        change(engine, types, second, name=first.name)
    assert change(engine, types, first, name=first.name).version == 2
    assert make_chain(engine, types, name="Nightly").name == "Nightly"


def test_one_of_many_that_take_a_name_in_the_same_moment_gets_it(engine: Engine, types: NodeTypes) -> None:
    def take(make: Any) -> str:
        try:
            make()
        except NameTaken:
            return "taken"
        return "made"

    def make_job() -> None:
        given = {"name": "j", "description": None, "type_name": "print", "config_json": {}, "enabled": False}
        jobs.create_job(engine, types, **given, actor=ACTOR)

    for make in (lambda: make_chain(engine, types), make_job):
        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(take, [make] * 8)) == ["made"] + ["taken"] * 7


def test_of_two_updates_with_one_version_one_wins(engine: Engine, types: NodeTypes) -> None:
    made = make_chain(engine, types)

    def update(description: str) -> str:
        try:
            return str(change(engine, types, made, description=description).description)
        except Conflict as conflict:
            return f"{conflict.code}: {conflict}"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(update, "abcdefgh"))
    lost = "VERSION_CONFLICT: chain version conflict or not found"
    (winner,) = set(outcomes) - {lost}
    assert outcomes.count(lost) == 7
    stored = chains.get_chain(engine, made.chain_id)
    assert (stored.version, stored.description) == (2, winner)
    assert [row.action for row in audit_rows(engine)] == ["chain.create", "chain.update"]


def test_what_does_not_exist_or_is_invalid_changes_nothing(engine: Engine, types: NodeTypes) -> None:
    made = make_chain(engine, types)
    with pytest.raises(Unknown, match="chain not found: nobody"):
        chains.get_chain(engine, "nobody")
    with pytest.raises(Unknown):
        chains.set_chain_enabled(engine, "nobody", True, actor=ACTOR)
    with pytest.raises(InvalidChain, match=r"^dag must have nodes$"):
        change(engine, types, made, dag_json={"nodes": []})
    assert chains.get_chain(engine, made.chain_id) == made
    assert len(audit_rows(engine)) == 1


def test_pages_are_filtered_by_keyword_and_by_enabled(engine: Engine, types: NodeTypes) -> None:
    for name in ("Orders_daily", "orders%hourly", "stock"):
        make_chain(engine, types, name=name, enabled=name != "stock")
    chains.create_chain(engine, types, name="x", description="reads ORDERS", dag_json=LINE, actor=ACTOR)

    def names(**filters: Any) -> list[str]:
        page = chains.page_of_chains(engine, **{"page": 1, "size": 10, **filters})
        assert all("dag_json" not in row._mapping for row in page.rows)
        return [row.name for row in page.rows]

    assert names() == ["x", "stock", "orders%hourly", "Orders_daily"]
    assert set(names(keyword="orders")) == {"Orders_daily", "orders%hourly", "x"}
    assert names(keyword="s%h") == ["orders%hourly"]
    assert names(keyword="s_d") == ["Orders_daily"]
    assert names(enabled=False) == ["stock"]
    assert names(page=2, size=3) == ["Orders_daily"]
    assert names(page=9) == []
    assert chains.page_of_chains(engine, page=2, size=3).total == 4


def test_the_same_request_key_makes_one_chain(engine: Engine, types: NodeTypes) -> None:
    key = RequestKey("key:all create", "k-1", "a" * 64)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: make_chain(engine, types, request_key=key), range(8)))
    assert len({chain.chain_id for chain in made}) == 1
    assert len(audit_rows(engine)) == 1
    with pytest.raises(Conflict, match="used before with another body") as refused:
        make_chain(engine, types, name="b", request_key=RequestKey(key.scope, key.key, "b" * 64))
    assert refused.value.code == "IDEMPOTENCY_KEY_REUSED"
    other = make_chain(engine, types, name="b", request_key=RequestKey("key:other create " * 20, "k-1", "b" * 64))
    assert other.name == "b"


def test_a_job_has_the_same_life_as_a_chain(engine: Engine, types: NodeTypes) -> None:
    given = {"name": "hello", "description": "d", "type_name": "print", "config_json": '{"message": "hi"}'}
    job = jobs.create_job(engine, types, **given, actor=ACTOR)
    assert (job.version, job.enabled, job.config_json) == (1, True, {"message": "hi"})
    changed = jobs.update_job(
        engine, types, job.job_id, **{**given, "config_json": {"message": "ho"}}, version=1, actor=ACTOR
    )
    assert (changed.version, changed.config_json) == (2, {"message": "ho"})
    with pytest.raises(Conflict, match=r"^job version conflict or not found$"):
        jobs.update_job(engine, types, job.job_id, **given, version=1, actor=ACTOR)
    with pytest.raises(NameTaken):
        jobs.create_job(engine, types, **given, actor=ACTOR)
    with pytest.raises(InvalidChain, match="type: expected one of") as refused:
        jobs.create_job(engine, types, **{**given, "type_name": "nope"}, actor=ACTOR)
    assert refused.value.code == "JOB_INVALID"
    assert not jobs.set_job_enabled(engine, job.job_id, False, actor=ACTOR).enabled
    assert jobs.page_of_jobs(engine, page=1, size=5, enabled=False).total == 1
    assert [row.action for row in audit_rows(engine)] == ["job.create", "job.update", "job.disable"]
