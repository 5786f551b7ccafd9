"""Triggers of a chain: `triggers` in dagJson, a cron with its zone or a table whose arrivals start runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from platform_defs.chains.cron import cron_problem

MOST_TRIGGERS = 20
LONGEST_TABLE = 255
# the parameter of a run that an arrival started: the batch of the table
OP_TIME = "opTime"
# Begins what a run says of its start if the arrival of a table started it.
TABLE_TRIGGER = "table "


@dataclass(frozen=True)
class CronTrigger:
    """Starts a run at the times of the cron expression, in the zone's own time."""

    cron: str
    zone: str = "UTC"
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableTrigger:
    """Starts a run for each arrival of the table, with its batch as `params.opTime`; see docs/arrivals.md."""

    table: str
    params: Mapping[str, Any] = field(default_factory=dict)


Trigger = CronTrigger | TableTrigger


def trigger_problems(triggers: Any) -> list[str]:
    """One line for each problem of `triggers` as a user wrote them; None means that there are none."""
    if triggers is None:
        return []
    if not isinstance(triggers, list):
        return ["triggers: expected a list"]
    problems = []
    if len(triggers) > MOST_TRIGGERS:
        problems.append(f"triggers: expected at most {MOST_TRIGGERS}, got {len(triggers)}")
    for number, trigger in enumerate(triggers[:MOST_TRIGGERS]):
        problems += [f"triggers[{number}]{problem}" for problem in _problems_of(trigger)]
    return problems


def parse_triggers(dag_json: Mapping[str, Any]) -> tuple[Trigger, ...]:
    """The triggers of a stored, validated chain."""
    written: Sequence[Mapping[str, Any]] = dag_json.get("triggers") or ()
    return tuple(
        CronTrigger(trigger["cron"], trigger.get("zone") or "UTC", trigger.get("params") or {})
        if "cron" in trigger
        else TableTrigger(trigger["table"], trigger.get("params") or {})
        for trigger in written
    )


def _problems_of(trigger: Any) -> list[str]:
    if not isinstance(trigger, Mapping):
        return [": expected an object"]
    if ("cron" in trigger) == ("table" in trigger):
        return [": expected either cron or table"]
    known = {"cron", "zone", "params"} if "cron" in trigger else {"table", "params"}
    problems = [f".{name}: this field is not known" for name in sorted(map(str, trigger.keys() - known))]
    if not isinstance(trigger.get("params", {}) or {}, Mapping):
        problems.append(".params: expected an object")
    elif "table" in trigger and OP_TIME in (trigger.get("params") or {}):
        problems.append(f".params.{OP_TIME}: expected another name, because the arrival gives this one")
    return problems + (_cron_problems(trigger) if "cron" in trigger else _table_problems(trigger["table"]))


def _cron_problems(trigger: Mapping[str, Any]) -> list[str]:
    cron, zone = trigger["cron"], trigger.get("zone") or "UTC"
    if not isinstance(cron, str):
        return [".cron: expected a text such as 0 6 * * 1-5"]
    problem = cron_problem(cron)
    problems = [f".cron: {problem}"] if problem else []
    if not isinstance(zone, str) or not _is_zone(zone):
        problems.append(".zone: expected the name of a time zone such as Europe/Berlin")
    return problems


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _table_problems(table: Any) -> list[str]:
    if not isinstance(table, str) or not table.strip() or table != table.strip():
        return [".table: expected the name of a table without spaces around it"]
    if len(table) > LONGEST_TABLE or not table.isprintable():
        return [f".table: expected at most {LONGEST_TABLE} printable characters"]
    return []
