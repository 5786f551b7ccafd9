"""What can go wrong with arrivals, models and subscriptions to KPIs; see webhooks/errors.py for deliveries.

ArrivalsError
├── InvalidArrival      400: a field of the request is wrong; `field` names it
├── InvalidQuery        400: a parameter of a request for results is wrong; `field` names it
├── UnknownModel        404: no model has this id
├── InvalidChange       a model cannot be renamed, retired or deleted like this, or not now
├── UnknownTask         404: no task has this id, or not any more
├── AlreadyRunning      the batch is being executed; the message is the seed's and goes over the wire
├── Contended           two processes queued the same batch at the same moment; the later one tries again
├── TakenOver           the recovery took this process for dead and closed its execution: nothing it does may count
├── ModelChanged        another version of the model was loaded while its query ran: its values are out of date
├── ModelFailed         an execution failed; the message goes into the task log and the answer
├── InvalidSubscription 400: a field of a new subscription is wrong; `field` names it
└── UnknownSubscription 404: no such subscription, or another team's

A model file that is refused raises yaml_lines.YamlFileError. Two ValueErrors never leave `models/`: InvalidSql
(models/sql.py) and InvalidExpression (models/kpi_expressions.py) become problems of the file or a ModelFailed.
"""

from platform_defs.errors import PlatformError, driver_error, one_line
from platform_defs.logs import mask_secrets

NO_DEPENDENT_MODEL = "无模型依赖此表"
IN_PROGRESS = "任务正在执行中"


class ArrivalsError(PlatformError):
    """Table arrival could not do what was asked."""


class InvalidArrival(ArrivalsError):
    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class InvalidQuery(ArrivalsError):
    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field


class UnknownModel(ArrivalsError):
    advice = "`platform models list` shows all"


class UnknownTask(ArrivalsError):
    pass


class InvalidChange(ArrivalsError):
    pass


class AlreadyRunning(ArrivalsError):
    def __init__(self) -> None:
        super().__init__(IN_PROGRESS)


class Contended(ArrivalsError):
    pass


class TakenOver(ArrivalsError):
    pass


class ModelChanged(ArrivalsError):
    pass


class ModelFailed(ArrivalsError):
    """`source_is_down`: the data source did not answer, so that a later try may succeed."""

    def __init__(self, message: str, *, source_is_down: bool = False) -> None:
        super().__init__(message)
        self.source_is_down = source_is_down


class InvalidSubscription(ArrivalsError):
    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field


class UnknownSubscription(ArrivalsError):
    advice = "`platform webhooks list` shows all"

    def __init__(self, subscription_id: int) -> None:
        super().__init__(f"no subscription has the id {subscription_id}")


def failure_text(error: Exception) -> str:
    """One line for task log, answer and tick: without secrets, and without SQLAlchemy's statement and parameters."""
    if isinstance(error, ArrivalsError):
        return str(error)
    cause = driver_error(error)
    return mask_secrets(f"{type(cause).__name__}: {one_line(cause) if str(cause) else 'no reason given'}")
