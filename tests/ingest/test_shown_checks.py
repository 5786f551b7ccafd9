"""A check that Dagster hides is reported again: its asset was materialised since, or in the same second."""

from dagster import AssetCheckEvaluation, AssetCheckKey, AssetKey, AssetMaterialization, DagsterInstance

from assets.shown_checks import shown_evaluation

KEY = AssetCheckKey(AssetKey(["ingest", "s", "e", "harvest"]), "complete")


def test_an_evaluation_counts_as_shown_until_its_asset_is_materialised() -> None:
    with DagsterInstance.ephemeral() as instance:
        assert shown_evaluation(instance, KEY) is None
        evaluation = AssetCheckEvaluation(KEY.asset_key, KEY.name, passed=False, description="one is missing")
        instance.report_runless_asset_event(evaluation)
        shown = shown_evaluation(instance, KEY)
        assert shown is not None
        assert shown.description == "one is missing"
        instance.report_runless_asset_event(AssetMaterialization(KEY.asset_key))
        assert shown_evaluation(instance, KEY) is None
