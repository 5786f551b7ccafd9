"""A small Registry file, its rows without a database, and edits of both."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, Table

from platform_defs.ingest.registry.dictionaries import BUILT_IN
from platform_defs.ingest.registry.file import read_file
from platform_defs.ingest.registry.loading import Change, load
from platform_defs.ingest.registry.rows import RegistryRows
from platform_defs.ingest.registry.sections import EFFECTIVE_TABLES

NOW = datetime(2026, 11, 1, tzinfo=UTC)

GOOD = """\
sources:
  - code: demo
    name: A source
    base_url: https://demo.test
    http:
      headers: {Accept: application/json}
    rate: {per_second: 5, provider_limit_per_second: 10}
    credentials:
      - {alias: key, type: API_KEY, location: HEADER, field: X-Key, secret: "env:DEMO_KEY"}
    pagination:
      type: OFFSET
      offset_param: offset
      limit_param: limit
      page_size: 100
      max_page_size: 200
      total: $.total
      has_more: $.more
    window:
      start: 2026-01-01
      size: 1d
      min_size: 1h
      align: hour
      watermark_key: updated_at
      cursor_type: TIME
      supports_updated_since: true
    batching: {id_batch_size: 50, max_ids_per_request: 100}
    retry: {max_retries: 3, retry_statuses: [500, 503]}
    capabilities:
      - {field: "*", functions: [formatDateTime]}
    endpoints:
      - name: items
        role: SEARCH
        method: GET
        path: /items
        linked_endpoint: item
        items: $.items
        id: $.id
        updated_at: $.updated
        params:
          - {key: from, name: from, expr: "${formatDateTime(window.from, 'ISO')}", required: true}
          - {key: to, name: to, expr: "${formatDateTime(window.to, 'ISO')}", required: true}
        output: {title: $.title}
      - name: item
        role: DETAIL
        method: GET
        path: /item
        items: $.items
        id: $.id
        updated_at: $.updated
        batching: {ids_param: id}
"""


def load_text(engine: Engine, content: str, *, now: datetime = NOW, name: str = "sources.yaml") -> list[Change]:
    return load(engine, read_file(content.encode(), name), now=now)


def rows_of(content: str = GOOD) -> RegistryRows:
    """What the Registry holds after the file was loaded, without a database."""
    file = read_file(content.encode(), "sources.yaml")
    assert file.problems == []
    return RegistryRows(
        sources={
            row.values["provenance_code"]: {"id": 1, "lifecycle_status_code": "ACTIVE", **row.values}
            for row in file.sources
        },
        tables={
            table.name: [
                {"id": number, **row.values}
                for number, row in enumerate((row for row in file.rows if row.table is table), 1)
            ]
            for table in EFFECTIVE_TABLES
        },
        dictionary={kind: frozenset(codes) for kind, codes in BUILT_IN.items()},
    )


def edited(rows: RegistryRows, table: Table, columns: Mapping[str, Any], **where: Any) -> RegistryRows:
    """The rows with other values in some columns of those rows of a table that `where` names."""
    changed = [
        {**row, **columns} if all(row[name] == value for name, value in where.items()) else row
        for row in rows.tables[table.name]
    ]
    assert changed != list(rows.tables[table.name]), "the edit must hit a row"
    return replace(rows, tables={**rows.tables, table.name: changed})
