"""How ingest is called in Dagster: asset keys and tags."""

from dagster import AssetKey

from platform_defs.ingest.codes import Operation
from platform_defs.ingest.kinds_of_work import ASSET_PREFIX

GROUP = "ingest"
COMPLETE = "complete"
# The plan of a run, so that the ledger is found from the run; a run over many partitions has a tag for each.
PLAN_TAG = "platform/ingest_plan"
# The endpoint and operation of a run that a sensor asked for: it asks for no second one meanwhile.
ENDPOINT_TAG = "platform/ingest_endpoint"


def asset_key(provenance_code: str, endpoint_name: str, operation: Operation) -> AssetKey:
    return AssetKey([ASSET_PREFIX, provenance_code, endpoint_name, operation.lower()])


def endpoint_tag(provenance_code: str, endpoint_name: str, operation: Operation) -> str:
    return f"{provenance_code}/{endpoint_name}/{operation.lower()}"


def plan_tag_of(partition: str) -> str:
    """The tag of one of many partitions; a tag's name has no colons."""
    return f"{PLAN_TAG}.{partition.replace(':', '-')}"
