"""While no name has moved, which statements count is found on a short way: it must agree with the general rules."""

from hypothesis import given, settings
from hypothesis import strategies as st

from platform_defs.lineage.facts import Fact, Statement
from platform_defs.lineage.merge.speech.past_runs import fold
from platform_defs.lineage.merge.speech.speakers import SpeakerState, live_parts
from platform_defs.lineage.merge.speech.unmoved import unmoved_shape
from platform_defs.lineage.merge.state import empty_state, stamp_of
from platform_defs.lineage.version import Version
from tests.lineage.merging import JOBS, SQLS, TABLES, stated

x_or_y = st.sampled_from(["x", "y"])
statements = st.builds(
    stated,
    st.just(JOBS[0]),
    st.sampled_from([f"r{at}" for at in range(12)]),
    st.sampled_from(["START", "COMPLETE"]),
    st.just(SQLS[0]),
    st.just(TABLES[0]),
    st.sampled_from(TABLES[1:3]),
    st.sampled_from([{}, {"x": {}}, {"y": {}}]),
    st.lists(st.tuples(x_or_y, x_or_y), max_size=1),
    st.lists(st.sampled_from(["whole", "input only", "empty"]), max_size=1),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), statements), max_size=20))
def test_the_short_way_sees_a_change_exactly_where_the_general_rules_do(history: list[tuple[int, list[Fact]]]) -> None:
    state, speaker = empty_state("7"), SpeakerState()
    seen: list[tuple[object, object, object, object]] = []
    for place, (time, facts) in enumerate(history):
        statement = facts[-1]
        assert isinstance(statement, Statement)
        speaker.add(state, statement, stamp_of(Version(f"{time:032x}"), place))
        fold(state, speaker)
        parts = live_parts(state, speaker)
        counting = {part for part in parts if part.kind not in ("read", "reading")}
        seen.append(
            (parts.keys(), unmoved_shape(speaker, readers=True), counting, unmoved_shape(speaker, readers=False))
        )
    for parts, shape, counting, shape_without_readers in seen:
        assert all((parts == other[0]) == (shape == other[1]) for other in seen)
        assert all((counting == other[2]) == (shape_without_readers == other[3]) for other in seen)
