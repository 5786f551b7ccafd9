"""Reads Gravitino's names: `gravitino://tenant/{id}/{metalake}/{catalog}`, in older listeners without the tenant."""

from dataclasses import dataclass

from platform_defs.access.tenants import MAX_ID
from platform_defs.graph.asset_kinds import ASSET_KINDS
from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.facts import Ref

SCHEME = "gravitino://"


@dataclass(frozen=True, slots=True)
class Namespace:
    """path: metalake and catalog, as far as the namespace contains them."""

    tenant_id: int | None
    path: tuple[str, ...]


def parse_namespace(text: str | None) -> Namespace | None:
    """The parts of a Gravitino namespace; None for any other namespace."""
    if text is None or not text.startswith(SCHEME):
        return None
    path = tuple(part for part in text[len(SCHEME) :].split("/") if part)
    # A metalake may be called "tenant" as well. The path has a tenant only if a number follows that word.
    if len(path) >= 2 and path[0] == "tenant" and _is_number(path[1]):
        return Namespace(_tenant_id(path[1]), path[2:])
    return Namespace(None, path)


def ref_of(kind: str, dataset: Dataset) -> Ref | None:
    """The asset of this kind that a dataset names; None if namespace and name together have too few parts.

    Each part but the last ends at the next dot: `sales.orders.2024` is the table `orders.2024` of the schema `sales`.
    """
    namespace = parse_namespace(dataset.namespace)
    if namespace is None or not namespace.path:
        return None
    wanted = ASSET_KINDS[kind].name_parts
    # the namespace of a catalog should end with the metalake, but may also contain the catalog
    path = namespace.path[: wanted - 1] if kind == "catalog" else namespace.path
    missing = wanted - len(path)
    if missing < 1:
        return None
    names = dataset.name.split(".", missing - 1)
    if len(names) < missing or not all(names):
        return None
    return Ref(kind, (*path, *names))


def looks_like_gravitino(event: Event) -> bool:
    """Whether an event whose credential has no source type counts as an event of Gravitino."""
    return (
        "gravitino" in (event.producer or "").lower()
        or (event.job_name or "").startswith("gravitino.")
        or any("gravitino" in dataset.facets for dataset in event.datasets)
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _tenant_id(digits: str) -> int:
    """The number; for more digits than any id has, a number above the largest id, as int() refuses very long texts."""
    return int(digits) if len(digits) <= len(str(MAX_ID)) else MAX_ID + 1
