"""Token buckets, with a clock that the tests set."""

from platform_defs.lineage.sink.limits import TokenBuckets


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_tenant_gets_its_burst_and_then_its_rate() -> None:
    clock = Clock()
    buckets = TokenBuckets(rate=2, burst=3, clock=clock)
    assert [buckets.take(1) for _ in range(4)] == [True, True, True, False]
    assert buckets.take(2)
    clock.now += 1
    assert [buckets.take(1) for _ in range(3)] == [True, True, False]
    clock.now += 60
    assert [buckets.take(1) for _ in range(4)] == [True, True, True, False]


def test_a_rate_of_zero_is_no_limit() -> None:
    assert all(TokenBuckets(rate=0, burst=1).take(1) for _ in range(10))
