"""The job that sends due webhooks while no API process is alive to send them."""

from dagster import Definitions, OpExecutionContext, job, op

from platform_defs.settings import Settings
from platform_defs.webhooks.sender import open_sender
from resources.database import DatabaseResource


@op
def send_due_webhooks(context: OpExecutionContext, database: DatabaseResource) -> None:
    """Makes every attempt that is due now."""
    sender = open_sender(Settings.load(), database.engine, owner=f"run {context.run_id}")
    try:
        attempts = sender.send_due()
    finally:
        sender.close()
    context.log.info(f"made {attempts} attempts" if attempts else "nothing to do: no webhook is due")
    context.add_output_metadata({"attempts": attempts})


@job(
    description="For the platform itself: sends the webhooks that are due while no API process does.",
    # Bound here and not by the Definitions, for the reason given in assets/arrivals/jobs.py.
    resource_defs={"database": DatabaseResource()},
)
def webhook_send() -> None:
    send_due_webhooks()


def definitions() -> Definitions:
    return Definitions(jobs=[webhook_send])
