"""How source tables, models and batches are named in Dagster: asset keys, partitions and ops."""

import re

from dagster import AssetKey, DynamicPartitionsDefinition

OP_TIMES = DynamicPartitionsDefinition(name="op_time")
_PARTITION = re.compile(r"[A-Za-z0-9_:.-]{1,64}", re.ASCII)


def table_key(name: str) -> AssetKey:
    return AssetKey(["tables", name])


def model_key(model_id: str) -> AssetKey:
    return AssetKey(["models", model_id])


def partition_of(op_time: str) -> str | None:
    """The partition of a batch. ETL jobs may write any text as opTime; None for a text that cannot be a partition."""
    return op_time if _PARTITION.fullmatch(op_time) and "..." not in op_time else None


def op_name(model_id: str) -> str:
    """The name of a model's op, which may hold only letters, digits and `_`.

    Every other character, `_` included, becomes its number, so that no two models share an op as `a.b` and `a-b` would.
    """
    return "model_" + "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}_" for c in model_id)
