"""Every code of the rows that a spec is made of must be in the system dictionaries, and known to the platform."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Table

from platform_defs.ingest.registry.code_columns import CODE_COLUMNS
from platform_defs.ingest.registry.dictionaries import BUILT_IN
from platform_defs.ingest.registry.rows import RegistryRows, Row
from platform_defs.ingest.spec.merging import Findings
from platform_defs.ingest.spec.parts import Draft
from platform_defs.store.tables import registry as tables


def check_codes(draft: Draft, rows: RegistryRows, findings: Findings) -> None:
    """An item that only the dictionary has is refused as well: the platform would not know what it means."""
    if draft.spec.operation not in rows.dictionary.get("ing_operation", ()):
        findings.add(tables.sys_dict_item, "ing_operation", f"expected {draft.spec.operation} to be an active item")
    for table, row in _rows_of(draft):
        for column, kind in CODE_COLUMNS.get(table, {}).items():
            value = row[column]
            if value is None:
                continue
            known = sorted(rows.dictionary.get(kind, frozenset()) & set(BUILT_IN[kind]))
            if value not in known:
                endpoint = row.get("endpoint_name")
                expected = f"expected one of {', '.join(known) or 'none'}, got {value!r}"
                findings.add(table, column, expected, endpoint, row.get("std_key"))


def _rows_of(draft: Draft) -> Iterator[tuple[Table, Row]]:
    endpoints: Sequence[Row | None] = (draft.endpoint, draft.detail)
    for endpoint in endpoints:
        if endpoint is None:
            continue
        yield tables.reg_prov_endpoint_def, endpoint
        for table in CODE_COLUMNS:
            if table is not tables.reg_prov_endpoint_def:
                name, operation = endpoint["endpoint_name"], draft.spec.operation
                yield from ((table, row) for row in draft.rows.scoped(table, draft.code, name, operation))
