"""What the UI shows of a check: nothing, if its asset was materialised since the check was evaluated."""

from collections.abc import Sequence

from dagster import AssetCheckEvaluation, AssetCheckKey, DagsterInstance


def shown_evaluation(instance: DagsterInstance, key: AssetCheckKey) -> AssetCheckEvaluation | None:
    """The newest evaluation; None where there is none, or where Dagster hides it.

    Dagster compares the time of the newest materialisation with that at which the evaluation was stored, which may be
    known to the second only: a check that failed just after a materialisation would look as if it had never run.
    """
    keys: Sequence[AssetCheckKey] = [key]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys).get(key)
    if found is None or not isinstance(found.evaluation, AssetCheckEvaluation):
        return None
    made = instance.get_latest_materialization_event(key.asset_key)
    return found.evaluation if made is None or made.timestamp < found.create_timestamp else None
