"""What a planner may count on: requests within a time to come, by rate, cool-down and quotas."""

import math
from datetime import datetime, timedelta

from platform_defs.rate_gate.decisions import Estimate, GateState, Reason
from platform_defs.rate_gate.policy import RatePolicy

_HOUR_S = 3600.0
_DAY_S = 86_400.0


def estimate_requests(
    standing: GateState, policy: RatePolicy, horizon: timedelta, *, now: datetime, latency_s: float
) -> Estimate:
    """The safety margins of the quotas are not planned with: they are what is left when a plan was wrong."""
    seconds = max(0.0, horizon.total_seconds())
    by_rate = math.floor(max(0.0, seconds - standing.next_slot_s) * standing.rate_per_s)
    allowed = [(by_rate, Reason.COOLING_DOWN if standing.cool_s > 0 else None)]
    if standing.hour_left is not None and policy.quota_hourly is not None:
        hourly = _within_quota(policy.quota_hourly, standing.hour_left, standing.hour_ends_s, seconds, _HOUR_S, policy)
        allowed.append((hourly, Reason.QUOTA_HOURLY))
    if standing.day_left is not None and policy.quota_daily is not None:
        daily = _within_quota(policy.quota_daily, standing.day_left, standing.day_ends_s, seconds, _DAY_S, policy)
        allowed.append((daily, Reason.QUOTA_DAILY))
    if standing.window_left is not None and standing.window_ends_s >= seconds:
        allowed.append((standing.window_left, Reason.SOURCE_WINDOW))
    requests, limited_by = min(allowed, key=lambda entry: entry[0])
    wanted = max(1, math.ceil(standing.rate_per_s * latency_s))
    concurrency = wanted if policy.max_concurrent is None else min(wanted, policy.max_concurrent)
    available_from = now + timedelta(seconds=standing.next_slot_s)
    return Estimate(requests, standing.rate_per_s, concurrency, limited_by, available_from)


def _within_quota(quota: int, left: int, ends_s: float, seconds: float, window_s: float, policy: RatePolicy) -> int:
    """What is left of this window, and whole quotas for those that begin within the horizon."""
    usable = math.floor(quota * (1 - policy.quota_margin))
    this = max(0, left - (quota - usable))
    more = math.ceil(max(0.0, seconds - ends_s) / window_s)
    return this + more * usable
