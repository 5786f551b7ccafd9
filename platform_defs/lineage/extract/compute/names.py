"""Which logical table a dataset is, as (metalake, catalog, schema, table).

In this order:
1. The TABLE identifier of the `symlinks` facet, so that a file and the table that stands for it are one node. Where the
   job runs in a Gravitino namespace (`gravitino://{metalake}[/{catalog}]`), an identifier `catalog.schema.table` or
   `schema.table` is a table of that metalake.
2. The dataset itself, when its namespace is `gravitino://`.
3. The dataset's own namespace and name. The namespace is the metalake; a name of three parts `db.schema.table` says the
   rest. Where a name leaves the catalog open, the namespace is its own catalog; where it leaves the schema open, that
   is `./`, which no name of a schema can be as it holds a slash:
     ns, `db.schema.table`         (ns, db, schema, table)     further dots belong to the table
     ns, `schema.table`            (ns, ns, schema, table)
     ns, `table`                   (ns, ns, ./, table)
     scheme://host/db, `s.table`   (scheme://host, db, s, table)     the same as scheme://host, `db.s.table`
     ns, `/dir/file`               (ns, ns, /dir/, file)       a path; the slash keeps directories apart from schemas
   But for a trailing slash and a database that is said twice, two datasets never become one table, and none is lost.
"""

from functools import lru_cache

from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.columns import is_deleted
from platform_defs.lineage.extract.gravitino.names import SCHEME, parse_namespace, ref_of
from platform_defs.lineage.facts import Ref

# where a name is a path even if it has no slash
_FILE_SCHEMES = frozenset(
    {
        "abfs",
        "abfss",
        "cos",
        "dbfs",
        "file",
        "ftp",
        "gs",
        "gvfs",
        "hdfs",
        "oss",
        "s3",
        "s3a",
        "s3n",
        "sftp",
        "wasb",
        "wasbs",
    }
)


OPEN_SCHEMA = "./"


class Names:
    """The logical tables of one event's datasets; column lineage names them by their physical names."""

    def __init__(self, event: Event) -> None:
        self._job_namespace = event.job_namespace
        self._known: dict[tuple[str, str], Ref] = {}
        for dataset in event.datasets:
            key = (dataset.namespace, dataset.name)
            # the same dataset may stand among inputs and outputs, with symlinks in one place only
            if key not in self._known or "symlinks" in dataset.facets:
                self._known[key] = logical_table(dataset, event.job_namespace)

    def of(self, dataset: Dataset) -> Ref:
        return self._known[dataset.namespace, dataset.name]

    def named(self, namespace: str, name: str) -> Ref:
        """A dataset that is only mentioned, as an input of a column: the event may describe it elsewhere."""
        known = self._known.get((namespace, name))
        return known or logical_table(Dataset(namespace, name, {}), self._job_namespace)


def logical_table(dataset: Dataset, job_namespace: str | None) -> Ref:
    identifier = _table_identifier(dataset)
    if identifier is None:
        return _named(dataset.namespace, dataset.name)
    namespace, name = identifier
    if not namespace.startswith(SCHEME):
        in_metalake = _in_metalake_of(job_namespace, name)
        if in_metalake is not None:
            return in_metalake
    return _named(namespace, name)


@lru_cache(maxsize=8192)
def _named(namespace: str, name: str) -> Ref:
    if namespace.startswith(SCHEME):
        ref = ref_of("table", Dataset(namespace, name, {}))
        if ref is not None:
            return ref
    return Ref("table", _own_name(namespace, name))


def _own_name(namespace: str, name: str) -> tuple[str, str, str, str]:
    scheme, separator, rest = namespace.partition("://")
    if "/" in name or (scheme if separator else namespace.partition(":")[0]) in _FILE_SCHEMES:
        path = name.rstrip("/") or name
        directory, slash, base = path.rpartition("/")
        return (namespace, namespace, f"{directory}{slash}" or OPEN_SCHEMA, base or path)
    parts = name.split(".", 2)
    if not all(parts):
        return (namespace, namespace, OPEN_SCHEMA, name)
    host, _, database = rest.partition("/")
    if separator and host and database:
        metalake = f"{scheme}{separator}{host}"
        if parts[0] == database and len(parts) == 3:
            parts = parts[1:]
        schema, _, table = ".".join(parts).partition(".")
        return (metalake, database, schema, table) if table else (metalake, database, OPEN_SCHEMA, schema)
    left_open = (namespace, OPEN_SCHEMA)[: 3 - len(parts)]
    catalog, schema, table = (*left_open, *parts)
    return (namespace, catalog, schema, table)


def spoken_name(table: Ref) -> tuple[str, ...]:
    """The names that SQL can write for a table: what its dataset says, without what only fills a gap."""
    metalake, catalog, schema, name = table.name
    said = (() if catalog == metalake else (catalog,)) + (() if schema.endswith("/") else (schema,))
    return (*said, *name.split("."))


def _table_identifier(dataset: Dataset) -> tuple[str, str] | None:
    facet = dataset.facet("symlinks")
    identifiers = facet.get("identifiers")
    if is_deleted(facet) or not isinstance(identifiers, list):
        return None
    for item in identifiers:
        if isinstance(item, dict) and str(item.get("type", "")).upper() == "TABLE":
            namespace, name = item.get("namespace"), item.get("name")
            if isinstance(name, str) and name.strip():
                own = dataset.namespace
                return (namespace if isinstance(namespace, str) and namespace.strip() else own), name
    return None


def _in_metalake_of(job_namespace: str | None, name: str) -> Ref | None:
    namespace = parse_namespace(job_namespace)
    if namespace is None or not namespace.path:
        return None
    metalake, *catalog = namespace.path[:2]
    parts = name.split(".", 2)
    if not all(parts):
        return None
    if len(parts) == 3:
        return Ref("table", (metalake, *parts))
    if len(parts) == 2 and catalog:
        return Ref("table", (metalake, *catalog, *parts))
    return None
