"""The kind of work of ingest: drain tasks that nobody works on."""

from collections.abc import Mapping
from typing import Any

from platform_defs.work.jobs import RECOVERY, JobLaunch, KindsOfWork

INGEST_DRAIN = "ingest_drain"
# The first part of the keys of all assets of ingest: by it the launcher tells its runs.
ASSET_PREFIX = "ingest"


def _launch_drain(payload: Mapping[str, Any]) -> JobLaunch:
    return JobLaunch(job_name=INGEST_DRAIN, trigger=RECOVERY)


KINDS_OF_WORK: KindsOfWork = {INGEST_DRAIN: _launch_drain}
