"""Pagination: which page comes first, and which comes after a page that was read. Pure decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from platform_defs.canonical import canonical_hash
from platform_defs.ingest.codes import ErrorLevel, PaginationType, RepeatedToken
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.spec.model import PaginationSpec
from platform_defs.ingest.spec.snapshot import instant_of, instant_text


@dataclass(frozen=True)
class PagePosition:
    """A page's place: the number counts pages of the slice from 1, the rest says how to ask for it."""

    number: int
    offset: int = 0
    page: int = 1
    token: str | None = None
    url: str | None = None
    # with TIME pagination: from when on; the window's own start at first
    time_from: datetime | None = None
    # the last page is being asked for once more
    is_probe: bool = False

    @property
    def is_given_by_source(self) -> bool:
        """Whether the source itself said how to ask for the page: it may forget that, or take it back."""
        return self.number > 1 and bool(self.token or self.url)

    def as_json(self) -> dict[str, Any]:
        time_from = None if self.time_from is None else instant_text(self.time_from)
        return {
            "number": self.number,
            "offset": self.offset,
            "page": self.page,
            "token": self.token,
            "url": self.url,
            "timeFrom": time_from,
            "isProbe": self.is_probe,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "PagePosition":
        time_from = document.get("timeFrom")
        return cls(
            document["number"],
            document["offset"],
            document["page"],
            document["token"],
            document["url"],
            None if time_from is None else instant_of(time_from),
            document["isProbe"],
        )

    def hash(self) -> str:
        """Includes the page's number: a source may name the same token on two pages."""
        return canonical_hash(self.as_json())


@dataclass(frozen=True)
class PageFacts:
    """What a page says of itself."""

    items: int
    has_more: bool | None = None
    next_token: str | None = None
    next_url: str | None = None
    total: int | None = None
    # the newest time among its items, for TIME pagination
    newest: datetime | None = None


def first_position(slice_spec: Mapping[str, Any]) -> PagePosition:
    initial = slice_spec["pagination"]["initial"]
    time = slice_spec["bounds"].get("time")
    return PagePosition(
        number=1,
        offset=initial["offset"],
        page=initial["page"],
        token=initial["token"],
        url=initial["url"],
        time_from=None if time is None else instant_of(time["from"]),
    )


def next_position(
    spec: PaginationSpec, position: PagePosition, facts: PageFacts, *, last_page: int | None = None
) -> PagePosition | None:
    """The page after this one; None at the end. `last_page` bounds a slice of pages.

    The seed's precedence (4.3.3): an explicit "has more", then a next token or URL, then whether the page is full.
    """
    if spec.max_page is not None and position.number >= spec.max_page and not position.is_probe:
        return None
    following = _following(spec, position, facts)
    if following is not None and last_page is not None and following.page > last_page:
        return None
    if following is None and not position.is_probe and _is_probed(spec, facts):
        return replace(position, number=position.number + 1, is_probe=True)
    return following


def is_cut_short(spec: PaginationSpec, position: PagePosition, facts: PageFacts) -> bool:
    """Whether paging ends at max_page although the source has more."""
    return (
        spec.max_page is not None and position.number >= spec.max_page and _following(spec, position, facts) is not None
    )


def exceeds_cap(spec: PaginationSpec, total: int | None) -> bool:
    """Whether the source has more records for this query than it lets a client page through."""
    if total is None:
        return False
    caps = [spec.result_cap] if spec.result_cap is not None else []
    if spec.max_page is not None and spec.page_size is not None:
        caps.append(spec.max_page * spec.page_size)
    return any(total > cap for cap in caps)


def _following(spec: PaginationSpec, position: PagePosition, facts: PageFacts) -> PagePosition | None:
    if facts.has_more is False:
        return None
    number, is_full = position.number + 1, _is_full(spec, facts)
    match spec.type:
        case PaginationType.OFFSET | PaginationType.PAGE:
            if not (facts.has_more or is_full) or facts.items == 0:
                return None
            # by the page size and not by what came: a page that lacks an item would shift all later ones
            step = spec.page_size or facts.items
            return PagePosition(number, position.offset + step, position.page + 1)
        case PaginationType.TOKEN:
            return _token_position(spec, position, facts, number)
        case PaginationType.URL:
            if not facts.next_url or facts.next_url == position.url:
                return None
            return PagePosition(number, url=facts.next_url, page=position.page + 1)
        case PaginationType.TIME:
            return _time_position(position, facts, number) if facts.has_more or is_full else None


def _token_position(spec: PaginationSpec, position: PagePosition, facts: PageFacts, number: int) -> PagePosition | None:
    if not facts.next_token or facts.items == 0:
        return None
    if spec.repeated_token is RepeatedToken.CONTINUES:
        # such a source names a token also behind its last page: only a page that is not full tells the end
        if not facts.has_more and not _is_full(spec, facts):
            return None
    elif facts.next_token == position.token:
        return None
    return PagePosition(number, page=position.page + 1, token=facts.next_token)


def _time_position(position: PagePosition, facts: PageFacts, number: int) -> PagePosition:
    """From the newest item on: those of the same instant come again, and are known by their ids."""
    if facts.newest is None or (position.time_from is not None and facts.newest <= position.time_from):
        raise ResponseError(
            ErrorLevel.REQUEST,
            "TIME_DOES_NOT_ADVANCE",
            "a full page holds only one instant: expected a larger page size or a source that can be paged",
        )
    return PagePosition(number, page=position.page + 1, time_from=facts.newest)


def _is_full(spec: PaginationSpec, facts: PageFacts) -> bool:
    """Without a page size nothing can be told from the number of items."""
    return spec.page_size is not None and facts.items >= spec.page_size


def _is_probed(spec: PaginationSpec, facts: PageFacts) -> bool:
    broken_off = spec.tail_probe and spec.type in (PaginationType.TOKEN, PaginationType.URL) and facts.items > 0
    return spec.last_page_again or broken_off
