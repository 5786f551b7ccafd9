"""Triggers of enabled chains as schedules and sensors. They start the chain themselves, so a tick names its run."""

import json
from datetime import UTC, datetime, timedelta

from dagster import (
    DefaultScheduleStatus,
    DefaultSensorStatus,
    Definitions,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
)

from assets.chains.loading import load_enabled_chains
from assets.chains.names import job_name
from platform_defs.canonical import canonical_json, sha256_hex
from platform_defs.chain_triggers import ActiveSince, Triggered, start_arrived, start_scheduled
from platform_defs.chains.definitions import Chain
from platform_defs.chains.errors import ChainsError
from platform_defs.chains.triggers import CronTrigger, TableTrigger, Trigger, parse_triggers
from platform_defs.chains.validation import read_dag
from platform_defs.settings import Settings
from platform_defs.work.wake import wake
from resources.database import DatabaseResource

INTERVAL_S = 5
_SHOWN = 5
_DIGITS = 8


def cron_schedule(chain: Chain, trigger: CronTrigger) -> ScheduleDefinition:
    """Starts the chain at the times of the cron; looking twice at the same time starts one run."""

    def start(context: ScheduleEvaluationContext) -> SkipReason:
        with DatabaseResource().open() as engine:
            run_id = start_scheduled(engine, chain.chain_id, trigger, context.scheduled_execution_time)
        if run_id is None:
            return SkipReason("the chain is disabled, or has this trigger no longer")
        wake(Settings.load().home)
        return SkipReason(f"started run {run_id}")

    return ScheduleDefinition(
        name=_name(chain, "cron", trigger),
        job_name=job_name(chain.chain_id, chain.name),
        cron_schedule=trigger.cron,
        execution_timezone=trigger.zone,
        execution_fn=start,
        default_status=DefaultScheduleStatus.RUNNING,
        description=f"Starts the chain {chain.name} at {trigger.cron} ({trigger.zone}). The tick names the run.",
    )


def table_sensor(chain: Chain, trigger: TableTrigger) -> SensorDefinition:
    """Starts the chain for each arrival of the table, once; its batch is params.opTime."""

    def start(context: SensorEvaluationContext) -> SensorResult:
        settings = Settings.load()
        known = ActiveSince.from_json(json.loads(context.cursor)) if context.cursor else ActiveSince()
        with DatabaseResource().open() as engine:
            done, active = start_arrived(
                engine,
                chain.chain_id,
                trigger,
                known,
                lookback=_lookback(settings),
                now=datetime.now(UTC),
            )
        if done.run_ids:
            wake(settings.home)
        if done.problems:
            # the other arrivals have started their runs; this shows as a failed tick until it can be started
            raise ChainsError(f"{_summary(done)}; not started: {'; '.join(done.problems[:_SHOWN])}")
        return SensorResult(skip_reason=SkipReason(_summary(done)), cursor=json.dumps(active.as_json()))

    return SensorDefinition(
        name=_name(chain, "table", trigger),
        job_name=job_name(chain.chain_id, chain.name),
        evaluation_fn=start,
        minimum_interval_seconds=INTERVAL_S,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Starts the chain {chain.name} when {trigger.table} arrives. The tick names the runs.",
    )


def definitions() -> Definitions:
    """A disabled chain has neither a job nor triggers; one that is invalid has been logged with its job."""
    schedules: dict[str, ScheduleDefinition] = {}
    sensors: dict[str, SensorDefinition] = {}
    for chain in load_enabled_chains():
        try:
            triggers = parse_triggers(read_dag(chain.dag_json, None))
        except ChainsError:
            continue
        for trigger in triggers:
            if isinstance(trigger, CronTrigger):
                schedule = cron_schedule(chain, trigger)
                schedules[schedule.name] = schedule
            else:
                sensor = table_sensor(chain, trigger)
                sensors[sensor.name] = sensor
    return Definitions(schedules=list(schedules.values()), sensors=list(sensors.values()))


def _name(chain: Chain, kind: str, trigger: Trigger) -> str:
    """The same as long as the trigger is the same, wherever it stands among others: its cursor belongs to the name."""
    return f"{job_name(chain.chain_id, chain.name)}__{kind}_{sha256_hex(canonical_json(vars(trigger)))[:_DIGITS]}"


def _lookback(settings: Settings) -> timedelta:
    """A run tells that its arrival was seen: an arrival whose run may be deleted by now is not looked at any more."""
    days = settings.arrivals_lookback_days
    return timedelta(days=min(days, settings.chain_retention_days) if settings.chain_retention_days else days)


def _summary(done: Triggered) -> str:
    if not done.run_ids:
        return "nothing has arrived that no run was started for"
    more = f" and {len(done.run_ids) - _SHOWN} more" if len(done.run_ids) > _SHOWN else ""
    return f"started {', '.join(f'run {run_id}' for run_id in done.run_ids[:_SHOWN])}{more}"
