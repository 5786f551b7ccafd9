"""Chains as they are stored: created, changed by their version, enabled and disabled, found and listed."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, or_, select

from platform_defs.chains.errors import Unknown
from platform_defs.chains.nodes.port import NodeTypes
from platform_defs.chains.request_keys import RequestKey
from platform_defs.chains.stored_definitions import Page, Saved, StoredDefinitions
from platform_defs.chains.validation import read_dag
from platform_defs.store.tables.chains import job_chain_definition

_CHAINS = StoredDefinitions("chain", job_chain_definition, body=("dag_json",), always_reload=False)


@dataclass(frozen=True)
class Chain:
    chain_id: str
    name: str
    description: str | None
    enabled: bool
    version: int
    dag_json: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime

    @classmethod
    def from_row(cls, row: Row[Any]) -> "Chain":
        return cls(**row._mapping)


def create_chain(
    engine: Engine,
    types: NodeTypes,
    *,
    name: str,
    description: str | None,
    dag_json: Any,
    actor: str,
    enabled: bool = True,
    request_key: RequestKey | None = None,
) -> Chain:
    """A new chain; with the request key of an earlier call the chain that it made. dagJson is an object or its text."""
    values = {"name": name, "description": description, "dag_json": read_dag(dag_json, types), "enabled": enabled}
    return Chain.from_row(_CHAINS.create(engine, str(uuid.uuid4()), values, actor=actor, request_key=request_key))


def update_chain(
    engine: Engine,
    types: NodeTypes,
    chain_id: str,
    *,
    name: str,
    description: str | None,
    dag_json: Any,
    version: int,
    actor: str,
) -> Chain:
    """Changes the chain if it still has this version. Runs that have begun keep the DAG that they were started with."""
    get_chain(engine, chain_id)
    values = {"name": name, "description": description, "dag_json": read_dag(dag_json, types)}
    return Chain.from_row(_CHAINS.update(engine, chain_id, values, version=version, actor=actor))


def save_chain(connection: Connection, values: Mapping[str, Any], *, actor: str) -> tuple[Chain, Saved]:
    """Creates or changes the chain of this name. The values are checked columns, with `enabled`."""
    row, saved = _CHAINS.save_by_name(connection, str(uuid.uuid4()), values, actor=actor)
    return Chain.from_row(row), saved


def set_chain_enabled(engine: Engine, chain_id: str, enabled: bool, *, actor: str) -> Chain:
    return Chain.from_row(_CHAINS.set_enabled(engine, chain_id, enabled, actor=actor))


def get_chain(engine: Engine, chain_id: str) -> Chain:
    return Chain.from_row(_CHAINS.get(engine, chain_id))


def find_chain(connection: Connection, chain_id: str) -> Chain:
    return Chain.from_row(_CHAINS.find(connection, chain_id))


def find_by_id_or_name(connection: Connection, id_or_name: str) -> Chain:
    """The chain with this id, or else with this name: people and sub-chain nodes may say either."""
    table = job_chain_definition
    query = select(table).where(or_(table.c.chain_id == id_or_name, table.c.name == id_or_name))
    found = {row.chain_id == id_or_name: row for row in connection.execute(query)}
    if not found:
        raise Unknown(f"chain not found: {id_or_name}", code="CHAIN_NOT_FOUND")
    return Chain.from_row(found.get(True) or found[False])


def enabled_chains(connection: Connection) -> list[Chain]:
    """All chains that are Dagster jobs, in an order that does not change between two loads."""
    table = job_chain_definition
    query = select(table).where(table.c.enabled).order_by(table.c.chain_id)
    return [Chain.from_row(row) for row in connection.execute(query)]


def page_of_chains(
    engine: Engine, *, page: int, size: int, keyword: str | None = None, enabled: bool | None = None
) -> Page:
    return _CHAINS.page(engine, page=page, size=size, keyword=keyword, enabled=enabled)
