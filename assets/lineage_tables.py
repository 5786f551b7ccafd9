"""Tables of the lineage graph as external assets with their dependencies, loaded from the snapshot in the database."""

import re
from collections.abc import Mapping, Set
from pathlib import Path

from dagster import AssetKey, AssetSpec, Definitions
from sqlalchemy.exc import SQLAlchemyError

from platform_defs.errors import StoreError, one_line
from platform_defs.lineage.tables.dependencies import TableAsset, assets_of
from platform_defs.lineage.tables.keys import PREFIX
from platform_defs.lineage.tables.shown import load_shown
from platform_defs.settings import Settings
from platform_defs.store.engine import read
from platform_defs.work.definition_versions import loads_shown
from resources.database import DatabaseResource

# Longer names and lists are cut in the UI; the graph has all of them.
_CHARACTERS = 500
_NAMED = 20
_PLAIN = re.compile(rf"[\w.:/ -]{{1,{_CHARACTERS}}}")


def load_tables() -> Mapping[AssetKey, TableAsset]:
    """The tables to show; none in a process that only executes runs."""
    settings = Settings.load()
    url = settings.database_url
    if not settings.lineage_observe or not settings.lineage_tables or not loads_shown():
        return {}
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return {}  # nothing was ever set up here, so there is no lineage
    try:
        with DatabaseResource().open() as engine:
            shown = read(engine, load_shown)
    except SQLAlchemyError as error:
        raise StoreError(f"the tables of lineage cannot be read: {one_line(error)}") from None
    observed = [table for table in shown if table.tenant_id not in settings.unobserved_tenants]
    assets = assets_of(observed, settings.arrivals_namespace)
    return {AssetKey(list(key)): asset for key, asset in assets.items()}


def table_metadata(asset: TableAsset) -> dict[str, str]:
    """What the UI says of a table, and which dependencies it cannot draw."""
    table = asset.tables[0]
    metadata = {
        "namespace": table.namespace[:_CHARACTERS],
        "name": table.name[:_CHARACTERS],
        "tenant": ", ".join(sorted({f"{same.tenant_id} ({same.tenant_code})" for same in asset.tables})),
    }
    if asset.in_cycle:
        names = ["itself" if key == asset.key else "/".join(key) for key in asset.in_cycle]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        metadata["not drawn, because it is a cycle: depends on"] = ", ".join(names[:_NAMED]) + more
    return metadata


def _description(asset: TableAsset) -> str:
    """Begins with the name, because lists in the UI cut the key in its middle."""
    table = asset.tables[0]
    name = f"{table.name} in {table.namespace}"
    # The UI takes it for Markdown: a name with a link or an image in it would become one.
    named = f"{name}: a table" if _PLAIN.fullmatch(name) else "A table"
    return f"{named} that lineage events name. It is filled outside of this platform."


def table_spec(asset: TableAsset) -> AssetSpec:
    return AssetSpec(
        AssetKey(list(asset.key)),
        deps=[AssetKey(list(key)) for key in asset.upstream],
        description=_description(asset),
        group_name=asset.group,
        metadata=table_metadata(asset),
        kinds={"table"},
        tags={"platform/system": PREFIX},
    )


def definitions(tables: Mapping[AssetKey, TableAsset], besides: Set[AssetKey]) -> Definitions:
    """The tables, but those whose assets are defined elsewhere."""
    return Definitions(assets=[table_spec(asset) for key, asset in tables.items() if key not in besides])
