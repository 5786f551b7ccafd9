"""How Gravitino names things: `gravitino://tenant/{id}/{metalake}/{catalog}`; older listeners leave the tenant out."""

from dataclasses import dataclass

from platform_defs.access.tenants import MAX_ID
from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.facts import Ref

SCHEME = "gravitino://"
# how many names it takes to say which asset is meant
_LEVELS = {"catalog": 2, "schema": 3, "table": 4, "column": 5}


@dataclass(frozen=True, slots=True)
class Namespace:
    tenant_id: int | None
    path: tuple[str, ...]  # of (metalake, catalog), what the namespace says


def parse_namespace(text: str | None) -> Namespace | None:
    """None for a namespace that is not Gravitino's."""
    if text is None or not text.startswith(SCHEME):
        return None
    path = tuple(part for part in text[len(SCHEME) :].split("/") if part)
    # a metalake may be called "tenant": only a number after it makes it the tenant's form
    if len(path) >= 2 and path[0] == "tenant" and _is_number(path[1]):
        return Namespace(_tenant_id(path[1]), path[2:])
    return Namespace(None, path)


def ref_of(kind: str, dataset: Dataset) -> Ref | None:
    """The asset that a dataset names, by its place in the hierarchy; None where the names do not reach that deep.

    Each name but the last ends at the next dot: `sales.orders.2024` is the table `orders.2024` of the schema `sales`.
    """
    namespace = parse_namespace(dataset.namespace)
    if namespace is None or not namespace.path:
        return None
    wanted = _LEVELS[kind]
    # a catalog's namespace should end one level up, yet may already say the catalog
    path = namespace.path[: wanted - 1] if kind == "catalog" else namespace.path
    missing = wanted - len(path)
    if missing < 1:
        return None
    names = dataset.name.split(".", missing - 1)
    if len(names) < missing or not all(names):
        return None
    return Ref(kind, (*path, *names))


def looks_like_gravitino(event: Event) -> bool:
    """Whether an event of unknown origin counts as Gravitino's."""
    return (
        "gravitino" in (event.producer or "").lower()
        or (event.job_name or "").startswith("gravitino.")
        or any("gravitino" in dataset.facets for dataset in event.datasets)
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _tenant_id(digits: str) -> int:
    """Any length of digits may stand here: what is longer than an id can be is beyond the largest, whatever it says."""
    return int(digits) if len(digits) <= len(str(MAX_ID)) else MAX_ID + 1
