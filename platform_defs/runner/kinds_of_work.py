"""All kinds of work, combined from the systems that declare them. A new system adds one line to DECLARED."""

from collections.abc import Mapping, Sequence
from typing import Any

from platform_defs.arrivals import kinds_of_work as arrivals
from platform_defs.chains import kinds_of_work as chains
from platform_defs.ingest import kinds_of_work as ingest
from platform_defs.lineage import kinds_of_work as lineage
from platform_defs.webhooks import kinds_of_work as webhooks
from platform_defs.work.errors import UnknownKind
from platform_defs.work.jobs import JobLaunch, KindsOfWork

SELFCHECK = "selfcheck"


def _launch_selfcheck(payload: Mapping[str, Any]) -> JobLaunch:
    return JobLaunch(job_name="selfcheck")


DECLARED: Sequence[KindsOfWork] = (
    {SELFCHECK: _launch_selfcheck},
    arrivals.KINDS_OF_WORK,
    chains.KINDS_OF_WORK,
    ingest.KINDS_OF_WORK,
    lineage.KINDS_OF_WORK,
    webhooks.KINDS_OF_WORK,
)
KINDS_OF_WORK: KindsOfWork = {kind: launch for kinds in DECLARED for kind, launch in kinds.items()}


def job_launch(kind: str, payload: Mapping[str, Any]) -> JobLaunch:
    if kind not in KINDS_OF_WORK:
        raise UnknownKind(f"unknown kind of work {kind!r}; expected one of {', '.join(sorted(KINDS_OF_WORK))}")
    return KINDS_OF_WORK[kind](payload)
