"""How source tables and models are named in Dagster: asset keys, partitions definitions and ops."""

from collections.abc import Collection

from dagster import AssetKey, DynamicPartitionsDefinition

from assets.op_names import op_name
from platform_defs.arrivals.partitions import MODEL_PREFIX, TABLE_PREFIX, partitions_name

TABLES_IN_TAG = 10
OP_TIMES = DynamicPartitionsDefinition(name=partitions_name(None))


def batches_of(period: str | None) -> DynamicPartitionsDefinition:
    """The partitions of a model with this period."""
    return OP_TIMES if period is None else DynamicPartitionsDefinition(name=partitions_name(period))


def table_key(name: str) -> AssetKey:
    return AssetKey([TABLE_PREFIX, name])


def model_key(model_id: str) -> AssetKey:
    return AssetKey([MODEL_PREFIX, model_id])


def op_of_model(model_id: str) -> str:
    return f"model_{op_name(model_id)}"


def tables_text(tables: Collection[str]) -> str:
    """What the tag of a run says of the tables that it reported."""
    first, rest = sorted(tables)[:TABLES_IN_TAG], len(tables) - TABLES_IN_TAG
    return ", ".join(first) + (f" and {rest} more" if rest > 0 else "")
