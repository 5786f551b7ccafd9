"""Reads a page: its items, what it says of further pages, and each item as a record or with the reason why not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from platform_defs.expressions.errors import UnreadableTime
from platform_defs.expressions.instants import InstantReader, compile_instants
from platform_defs.expressions.json_paths import Path, compile_path
from platform_defs.ingest.codes import ErrorLevel
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.fetching.pages import PageFacts
from platform_defs.ingest.spec.model import CallSpec, OutputField, PaginationSpec

MAX_PROVIDER_ID = 512
# Why an item cannot be read.
NO_ID, ID_TOO_LONG, UPDATED_AT = "NO_ID", "ID_TOO_LONG", "UPDATED_AT"


class Record(NamedTuple):
    """An item as it is stored. updated_at is None if the answer holds no time."""

    provider_id: str
    updated_at: datetime | None
    document: Any


@dataclass(frozen=True)
class Rejection:
    """An item that is set aside: data pollution (L3) never stops its batch."""

    provider_id: str | None
    reason_code: str
    field_path: str
    reason: str
    fragment: Any


class ResponseReader:
    """The compiled paths of one endpoint: made once for a snapshot, used for all of its pages and threads."""

    def __init__(self, call: CallSpec, pagination: PaginationSpec | None, output: Sequence[OutputField]) -> None:
        response = call.response
        self._items, self._items_path = compile_path(response.items_path), response.items_path
        self._id, self._id_path = compile_path(response.id_path), response.id_path
        self._prefix = _optional_path(response.id_prefix_path)
        self._ignores_case = response.id_ignores_case
        self._updated, self._updated_path = _optional_path(response.updated_at_path), response.updated_at_path
        self._times: InstantReader = compile_instants(response.updated_at_formats or ("AUTO",), response.timezone)
        paths = [(field.name, compile_path(field.path)) for field in output]
        # names in the record, and the names in the item of those fields whose path is nothing else
        self._names, self._plain_names = [name for name, _ in paths], [path.name for _, path in paths]
        self._walked = [(name, path.first) for name, path in paths if path.name is None]
        self._all = [(name, path.first) for name, path in paths]
        self._has_more = _optional_path(None if pagination is None else pagination.has_more_path)
        self._total = _optional_path(None if pagination is None else pagination.total_path)
        self._next_token = _optional_path(None if pagination is None else pagination.next_token_path)
        self._next_url = _optional_path(None if pagination is None else pagination.next_url_path)

    def items(self, document: Any) -> list[Any]:
        """The items of a page; an object of items by key counts as its values."""
        found = self._items.values(document)
        if len(found) == 1 and isinstance(found[0], list):
            return list(found[0])
        if len(found) == 1 and isinstance(found[0], dict) and not self._items_path.endswith("]"):
            return list(found[0].values())
        if not found and self._items.is_singular:
            raise ResponseError(
                ErrorLevel.REQUEST,
                "NO_ITEMS",
                f"the answer has nothing at {self._items_path}: expected a list of items",
            )
        return list(found)

    def facts(self, document: Any, items: Sequence[Any], records: Sequence[Record]) -> PageFacts:
        """What the page says of itself and of the next one."""
        has_more = _first(self._has_more, document)
        times = [record.updated_at for record in records if record.updated_at is not None]
        return PageFacts(
            items=len(items),
            has_more=None if has_more is None else _as_bool(has_more),
            next_token=_as_text(_first(self._next_token, document)),
            next_url=_as_text(_first(self._next_url, document)),
            total=_as_int(_first(self._total, document)),
            newest=max(times, default=None),
        )

    def total(self, document: Any) -> int | None:
        return _as_int(_first(self._total, document))

    def record(self, item: Any) -> Record | Rejection:
        """The item as a record, or the reason why it cannot be one."""
        provider_id = self.provider_id(item)
        if provider_id is None:
            return Rejection(None, NO_ID, self._id_path, "expected an id, found none", item)
        if len(provider_id) > MAX_PROVIDER_ID:
            reason = f"expected an id of at most {MAX_PROVIDER_ID} characters, got {len(provider_id)}"
            return Rejection(None, ID_TOO_LONG, self._id_path, reason, item)
        updated_at = None
        if self._updated is not None:
            value = self._updated.first(item)
            try:
                updated_at = self._times.read(value)
            except UnreadableTime as error:
                return Rejection(provider_id, UPDATED_AT, str(self._updated_path), str(error), item)
        return Record(provider_id, updated_at, self._mapped(item))

    def provider_id(self, item: Any) -> str | None:
        """The id as it is stored: with its prefix, and in lower case where the source ignores case."""
        value = _as_text(self._id.first(item))
        if not value:
            return None
        if self._prefix is not None:
            prefix = _as_text(self._prefix.first(item))
            value = f"{prefix}:{value}" if prefix else value
        return value.lower() if self._ignores_case else value

    def _mapped(self, item: Any) -> Any:
        if not self._names:
            return item
        if not isinstance(item, dict):
            return {name: first(item) for name, first in self._all}
        # all fields in their order, and then those again that are not simply a field of the item
        record = dict(zip(self._names, map(item.get, self._plain_names), strict=True))
        for name, first in self._walked:
            record[name] = first(item)
        return record


def check_body(call: CallSpec, document: Any) -> None:
    """Raises where a body is an error, or no answer at all, although its status says that all is well."""
    for path in call.response.error_paths:
        message = _compiled(path).first(document)
        if message not in (None, "", [], {}):
            raise ResponseError(
                ErrorLevel.TRANSIENT, "ERROR_IN_BODY", f"the source says at {path}: {str(message)[:200]}"
            )
    for path in call.response.required_paths:
        if not _compiled(path).values(document):
            raise ResponseError(ErrorLevel.TRANSIENT, "NO_ANSWER", f"the answer has nothing at {path}")


# a handful for each endpoint, asked for every page
_compiled = lru_cache(maxsize=1024)(compile_path)


def _optional_path(text: str | None) -> Path | None:
    return None if text is None else compile_path(text)


def _first(path: Path | None, document: Any) -> Any:
    return None if path is None else path.first(document)


def _as_text(value: Any) -> str | None:
    if type(value) is str:
        return value.strip() or None
    if isinstance(value, bool) or value is None or isinstance(value, Mapping | list):
        return None
    return str(value).strip() or None


def _as_int(value: Any) -> int | None:
    """PubMed counts in texts."""
    try:
        return None if value is None or isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        return None


def _as_bool(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).strip().lower() in ("true", "1", "yes", "y")
