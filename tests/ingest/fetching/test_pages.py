"""Which page comes after a page (the seed's 4.3.3 and 4.5), and that a last page asked for twice hides nothing."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from platform_defs.ingest.codes import PaginationType, PlanStatus, RepeatedToken
from platform_defs.ingest.errors import ResponseError
from platform_defs.ingest.fetching.pages import PageFacts, PagePosition, is_cut_short, next_position
from platform_defs.ingest.spec.model import PaginationSpec
from tests.ingest.execution.memory_source import MemorySource, item
from tests.ingest.execution.test_executor import DAY, drain, items_of, listed, paged, stored

FULL, SHORT = 10, 9
OFFSET, PAGE, TOKEN, URL = PaginationType.OFFSET, PaginationType.PAGE, PaginationType.TOKEN, PaginationType.URL
CONTINUES, ENDS = RepeatedToken.CONTINUES, RepeatedToken.ENDS
SENT = PagePosition(1, token="sent", url="https://source.test/sent")


def spec_of(kind: PaginationType, **more: Any) -> PaginationSpec:
    return PaginationSpec(kind, page_size=FULL, **more)


@pytest.mark.parametrize("kind", [OFFSET, PAGE])
@pytest.mark.parametrize(
    ("facts", "goes_on"),
    [
        (PageFacts(FULL, has_more=False), False),
        (PageFacts(SHORT, has_more=True), True),
        (PageFacts(FULL), True),
        (PageFacts(SHORT), False),
        (PageFacts(0, has_more=True), False),
    ],
    ids=["no more, says the source", "more, says the source", "full", "short", "empty"],
)
def test_what_the_source_says_of_more_pages_counts_before_the_size_of_the_page(
    kind: PaginationType, facts: PageFacts, goes_on: bool
) -> None:
    following = next_position(spec_of(kind), SENT, facts)
    assert (following is not None) == goes_on
    if following is not None:
        assert (following.number, following.offset, following.page) == (2, FULL, 2), "by the size that was asked for"


@pytest.mark.parametrize(
    ("repeated", "facts", "goes_on"),
    [
        (ENDS, PageFacts(SHORT, next_token="next"), True),
        (ENDS, PageFacts(FULL), False),
        (ENDS, PageFacts(FULL, next_token="sent"), False),
        (ENDS, PageFacts(FULL, has_more=False, next_token="next"), False),
        (CONTINUES, PageFacts(FULL, next_token="sent"), True),
        (CONTINUES, PageFacts(SHORT, next_token="next"), False),
        (CONTINUES, PageFacts(SHORT, has_more=True, next_token="sent"), True),
        (CONTINUES, PageFacts(0, next_token="next"), False),
    ],
)
def test_a_token_counts_before_the_size_of_the_page_and_a_repeated_one_as_the_source_means_it(
    repeated: RepeatedToken, facts: PageFacts, goes_on: bool
) -> None:
    following = next_position(spec_of(TOKEN, repeated_token=repeated), SENT, facts)
    assert (following is not None) == goes_on
    if following is not None:
        assert following.token == facts.next_token
        assert following.hash() != SENT.hash(), "the same token on another page is another place"


def test_a_next_url_counts_until_there_is_none_or_the_same() -> None:
    other = "https://source.test/other"
    following = next_position(spec_of(URL), SENT, PageFacts(SHORT, next_url=other))
    assert following is not None
    assert following.url == other
    for facts in (PageFacts(FULL), PageFacts(FULL, next_url=SENT.url), PageFacts(FULL, has_more=False, next_url=other)):
        assert next_position(spec_of(URL), SENT, facts) is None


def test_the_last_page_that_a_slice_may_fetch_is_its_end_and_is_told_from_the_sources() -> None:
    spec = spec_of(OFFSET, max_page=1)
    assert next_position(spec, SENT, PageFacts(FULL, has_more=True)) is None
    assert is_cut_short(spec, SENT, PageFacts(FULL))
    assert not is_cut_short(spec, SENT, PageFacts(SHORT))


def test_pages_by_time_that_do_not_advance_are_refused() -> None:
    at = PagePosition(3, time_from=DAY.start)
    with pytest.raises(ResponseError, match="a full page holds only one instant"):
        next_position(spec_of(PaginationType.TIME), at, PageFacts(FULL, newest=DAY.start))


@pytest.mark.parametrize("kind", [TOKEN, URL])
def test_a_list_that_breaks_off_is_asked_for_its_last_page_once_more(kind: PaginationType) -> None:
    spec = spec_of(kind, tail_probe=True)
    probe = next_position(spec, SENT, PageFacts(SHORT))
    assert probe is not None
    assert (probe.number, probe.token, probe.url, probe.is_probe) == (2, SENT.token, SENT.url, True)
    assert next_position(spec, probe, PageFacts(SHORT)) is None, "once"
    onwards = next_position(spec, probe, PageFacts(SHORT, next_token="next", next_url="https://source.test/next"))
    assert onwards is not None
    assert not onwards.is_probe
    assert next_position(spec, SENT, PageFacts(0)) is None, "an empty page is an end"


def losing_next(source: MemorySource, number: int) -> None:
    """The answer to this request lacks the way to the next page."""
    answer = source._page

    def page(names: Mapping[str, Any], url: str | None) -> dict[str, Any]:
        found = answer(names, url)
        return {**found, "next": None} if len(source.requests) == number else found

    source._page = page  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", [TOKEN, URL])
def test_a_next_page_that_the_source_forgot_to_name_once_is_found(engine: Engine, kind: PaginationType) -> None:
    spec = paged(kind, tail_probe=True, total_path=None, repeated_token=ENDS)
    source = MemorySource(spec.pagination, items_of(35))
    losing_next(source, 2)
    _, status = drain(engine, spec, source)
    assert status is PlanStatus.COMPLETED
    assert stored(engine) == listed(source.items)


@pytest.mark.parametrize("kind", [OFFSET, PAGE, URL])
def test_a_record_that_comes_onto_the_last_page_is_found_where_that_is_asked_for_again(
    engine: Engine, kind: PaginationType
) -> None:
    spec = paged(kind, last_page_again=True, total_path=None)
    source = MemorySource(spec.pagination, items_of(35))

    def come(number: int) -> None:
        if number == 5:
            source.items.append(item(99, DAY.end - timedelta(seconds=1)))

    source.trouble = come
    _, status = drain(engine, spec, source)
    assert (status, len(source.requests)) == (PlanStatus.COMPLETED, 5)
    assert stored(engine) == listed(source.items)
    assert "99" in stored(engine)


def test_items_that_the_last_page_lacks_are_missed_also_when_it_was_asked_for_twice(engine: Engine) -> None:
    spec = paged(last_page_again=True)
    source = MemorySource(spec.pagination, items_of(35))
    answer = source._page

    def page(names: Mapping[str, Any], url: str | None) -> dict[str, Any]:
        found = answer(names, url)
        return {**found, "items": found["items"][:4]} if len(found["items"]) == 5 else found

    source._page = page  # type: ignore[method-assign]
    _, status = drain(engine, spec, source)
    assert status is PlanStatus.PARTIAL, "the source counts 35 and lists 34"
