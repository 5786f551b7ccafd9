"""Tells Alembic how to write our column types, so that a generated migration reads like the table it creates."""

from collections.abc import Iterable
from typing import Any, Literal

from alembic.autogenerate.api import AutogenContext
from alembic.autogenerate.rewriter import Rewriter
from alembic.operations import ops
from alembic.runtime.migration import MigrationContext
from sqlalchemy.schema import DefaultClause

from platform_defs.store import types
from platform_defs.store.types import BigId, Blob, utc_now

_OURS = (types.Str, types.Fixed, types.LongText, types.Instant, types.Json, types.WideNumber, types.ExactNumber)
_VARIANTS = {id(BigId): "BigId", id(Blob): "Blob"}

rewrite = Rewriter()


def render_item(kind: str, item: Any, context: AutogenContext) -> str | Literal[False]:
    name = ""
    if kind == "type":
        name = repr(item) if isinstance(item, _OURS) else _VARIANTS.get(id(item), "")
    elif kind == "server_default" and isinstance(item, DefaultClause) and isinstance(item.arg, utc_now):
        name = "utc_now()"
    if not name:
        return False
    context.imports.add(f"from platform_defs.store.types import {name.split('(')[0]}")
    return name


@rewrite.rewrites(ops.CreateTableOp)
def _resumable_table(
    context: MigrationContext, revision: object, operation: ops.CreateTableOp
) -> Iterable[ops.MigrateOperation]:
    operation.if_not_exists = True
    return [operation]


@rewrite.rewrites(ops.CreateIndexOp)
def _resumable_index(
    context: MigrationContext, revision: object, operation: ops.CreateIndexOp
) -> Iterable[ops.MigrateOperation]:
    operation.if_not_exists = True
    return [operation]
