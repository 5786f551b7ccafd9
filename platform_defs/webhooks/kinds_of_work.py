"""The kind of work of webhooks: sending the due deliveries while no API process is alive to send them."""

from collections.abc import Mapping
from typing import Any

from platform_defs.work.jobs import RECOVERY, JobLaunch, KindsOfWork

WEBHOOK_SEND = "webhook_send"


def _launch_webhook_send(payload: Mapping[str, Any]) -> JobLaunch:
    return JobLaunch(job_name="webhook_send", trigger=RECOVERY)


KINDS_OF_WORK: KindsOfWork = {WEBHOOK_SEND: _launch_webhook_send}
