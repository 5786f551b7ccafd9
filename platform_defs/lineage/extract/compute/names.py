"""Finds the logical table (metalake, catalog, schema, table) that a dataset stands for.

The first of these that applies:
1. The TABLE identifier of the dataset's `symlinks` facet, so that a file and its table become one node. If the job runs
   in a Gravitino namespace (`gravitino://{metalake}[/{catalog}]`), an identifier `catalog.schema.table` or
   `schema.table` is a table of that metalake.
2. The dataset's own name in Gravitino's form, if its namespace begins with `gravitino://`.
3. The dataset's own namespace and name. The namespace is the metalake, and the name gives the other three parts. If the
   name has no catalog, the namespace is the catalog too. If it has no schema, the schema is `./`, which cannot be the
   name of a real schema because of its slash:
     ns, `db.schema.table`         (ns, db, schema, table)     further dots belong to the table
     ns, `schema.table`            (ns, ns, schema, table)
     ns, `table`                   (ns, ns, ./, table)
     scheme://host/db, `s.table`   (scheme://host, db, s, table)     the same as scheme://host, `db.s.table`
     ns, `/dir/file`               (ns, ns, /dir/, file)       a path; the slash keeps directories apart from schemas
     file:/dir, `schema.table`     (ns, ns, schema, table)     the namespace is a warehouse, and the name no path; the
                                                               same of file:///dir and s3://bucket/dir
     arn:aws:glue:…, `table/db/t`  (ns, ns, db, t)             as Glue names its tables
   Two different datasets never become the same table, except for a trailing slash and for a database that stands both
   in the namespace and in the name.

A name that another event has linked to a table by a `symlinks` facet means that table (sink/rows/symlinks.py).
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from platform_defs.lineage.events import Dataset, Event
from platform_defs.lineage.extract.columns import is_deleted
from platform_defs.lineage.extract.gravitino.names import SCHEME, parse_namespace, ref_of
from platform_defs.lineage.facts import Ref

# schemes of file systems: a dataset's name is a path there, even if it has no slash
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


NO_SCHEMA = "./"
_GLUE_TABLE = re.compile(r"table/(?P<schema>[^/]+)/(?P<table>[^/]+)")


class LogicalTables:
    """The logical tables of one event's datasets, which column lineage refers to by their physical names.

    linked: tables that names mean by the symlinks of other events. Afterwards `symlinks` has those of this event, and
    `plain` the names that the event uses without saying what they are linked to.
    """

    def __init__(self, event: Event, linked: Mapping[Ref, Ref]) -> None:
        self._linked = linked
        self._known: dict[tuple[str, str], Ref] = {}
        self.symlinks: dict[Ref, Ref] = {}
        self.plain: set[Ref] = set()
        for dataset in event.datasets:
            # the same dataset may be an input and an output, with a `symlinks` facet in only one of the two places
            target = symlink_of(dataset, event.job_namespace)
            if target is not None:
                self.symlinks[table_of_name(dataset.namespace, dataset.name)] = target
        for dataset in event.datasets:
            self._known[dataset.namespace, dataset.name] = self._find(dataset.namespace, dataset.name)

    def of(self, dataset: Dataset) -> Ref:
        return self._known[dataset.namespace, dataset.name]

    def by_name(self, namespace: str, name: str) -> Ref:
        """The table of a dataset that column lineage refers to; the event need not have it as input or output."""
        return self._known.get((namespace, name)) or self._find(namespace, name)

    def _find(self, namespace: str, name: str) -> Ref:
        own = table_of_name(namespace, name)
        if own in self.symlinks:
            return self.symlinks[own]
        self.plain.add(own)
        return self._linked.get(own, own)


def symlink_of(dataset: Dataset, job_namespace: str | None) -> Ref | None:
    """The table that the dataset's `symlinks` facet says it is; a deleted facet says that it is no other."""
    if is_deleted(dataset.facet("symlinks")):
        return table_of_name(dataset.namespace, dataset.name)
    identifier = _table_identifier(dataset)
    if identifier is None:
        return None
    namespace, name = identifier
    if not namespace.startswith(SCHEME):
        in_metalake = _in_metalake_of(job_namespace, name)
        if in_metalake is not None:
            return in_metalake
    return table_of_name(namespace, name, is_table=True)


@lru_cache(maxsize=8192)
def table_of_name(namespace: str, name: str, *, is_table: bool = False) -> Ref:
    """is_table: the name is known to be that of a table, even if the namespace is that of files."""
    if namespace.startswith(SCHEME):
        ref = ref_of("table", Dataset(namespace, name, {}))
        if ref is not None:
            return ref
    return Ref("table", _own_name(namespace, name, is_table=is_table))


def _own_name(namespace: str, name: str, *, is_table: bool) -> tuple[str, str, str, str]:
    """The four parts of a dataset's own name, by the third rule in the docstring of this module."""
    scheme, separator, rest = namespace.partition("://")
    if ":glue:" in namespace and (glue := _GLUE_TABLE.fullmatch(name)) is not None:
        return (namespace, namespace, glue["schema"], glue["table"])
    if "/" in name or (not _is_table_name(namespace, name, is_table=is_table) and _is_of_files(namespace)):
        path = name.rstrip("/") or name
        directory, slash, base = path.rpartition("/")
        return (namespace, namespace, f"{directory}{slash}" or NO_SCHEMA, base or path)
    parts = name.split(".", 2)
    if not all(parts):
        return (namespace, namespace, NO_SCHEMA, name)
    host, _, database = rest.partition("/")
    if separator and host and database and scheme not in _FILE_SCHEMES:
        metalake = f"{scheme}{separator}{host}"
        if parts[0] == database and len(parts) == 3:
            parts = parts[1:]
        schema, _, table = ".".join(parts).partition(".")
        return (metalake, database, schema, table) if table else (metalake, database, NO_SCHEMA, schema)
    defaults = (namespace, NO_SCHEMA)[: 3 - len(parts)]
    catalog, schema, table = (*defaults, *parts)
    return (namespace, catalog, schema, table)


def _is_of_files(namespace: str) -> bool:
    scheme, separator, _ = namespace.partition("://")
    return (scheme if separator else namespace.partition(":")[0]) in _FILE_SCHEMES


def _is_table_name(namespace: str, name: str, *, is_table: bool) -> bool:
    """Whether a name without a slash in a namespace of files is that of a table: the namespace is a warehouse then."""
    return is_table or (_is_directory(namespace) and "." in name.strip("."))


def _is_directory(namespace: str) -> bool:
    """Whether a namespace of files says more than a host or a bucket."""
    _, _, path = namespace.partition(":")
    if path.startswith("//"):
        # of `file:///dir` the host is empty
        return bool(path[2:].partition("/")[2].strip("/"))
    return path.startswith("/") or "/" in path.strip("/")


def sql_name(table: Ref) -> tuple[str, ...]:
    """The parts of a table's name that SQL text can contain: without the metalake and without filled-in defaults."""
    metalake, catalog, schema, name = table.name
    above = (() if catalog == metalake else (catalog,)) + (() if schema.endswith("/") else (schema,))
    return (*above, *name.split("."))


def _table_identifier(dataset: Dataset) -> tuple[str, str] | None:
    identifiers = dataset.facet("symlinks").get("identifiers")
    for item in identifiers if isinstance(identifiers, list) else ():
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
