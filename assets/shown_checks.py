"""What the UI shows of a check: nothing, if its asset was materialised since the check was evaluated."""

from collections.abc import Mapping, Sequence

from dagster import AssetCheckEvaluation, AssetCheckKey, DagsterInstance, EventLogRecord
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord


def newest_evaluations(
    instance: DagsterInstance, keys: Sequence[AssetCheckKey]
) -> Mapping[AssetCheckKey, tuple[AssetCheckEvaluation, bool]]:
    """The newest evaluation of each check that has one, and whether Dagster shows it."""
    if not keys:
        return {}
    records = instance.get_asset_records([key.asset_key for key in keys])
    made = {record.asset_entry.asset_key: record.asset_entry.last_materialization_record for record in records}
    found = {}
    for key, record in instance.event_log_storage.get_latest_asset_check_execution_by_key(keys).items():
        # While a run evaluates the check, the record holds the plan and no evaluation.
        if isinstance(record.evaluation, AssetCheckEvaluation):
            found[key] = record.evaluation, _is_shown(record, record.evaluation, made.get(key.asset_key))
    return found


def _is_shown(record: AssetCheckExecutionRecord, evaluation: AssetCheckEvaluation, made: EventLogRecord | None) -> bool:
    """As Dagster decides it, in AssetCheckExecutionRecord.targets_latest_materialization.

    Its last rule compares times, of which that of the evaluation may be known to the second only: a check that failed
    just after a materialisation looks as if it had never run.
    """
    if made is None or made.run_id == record.run_id:
        return True
    if evaluation.target_materialization_data is not None:
        return evaluation.target_materialization_data.storage_id == made.storage_id
    return made.timestamp < record.create_timestamp
