"""The kind of work of lineage: applying stored events that the graph still lacks, and rebuilding a tenant's graph."""

from collections.abc import Mapping
from typing import Any

from platform_defs.work.jobs import RECOVERY, JobLaunch, KindsOfWork

LINEAGE_APPLY = "lineage_apply"


def _launch_lineage_apply(payload: Mapping[str, Any]) -> JobLaunch:
    return JobLaunch(job_name="lineage_apply", trigger=RECOVERY)


KINDS_OF_WORK: KindsOfWork = {LINEAGE_APPLY: _launch_lineage_apply}
