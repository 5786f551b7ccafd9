"""What can go wrong with arrivals, models and subscriptions to KPIs; see webhooks/errors.py for deliveries.

ArrivalsError
├── InvalidArrival      400: a field of the request is not what it must be; `field` names it
├── UnknownModel        no such model
├── AlreadyRunning      the batch is being executed: the seed's message, as it goes over the wire
├── ModelFailed         an execution failed; the message goes into the task log and the answer
├── InvalidSubscription 400: a field of a new subscription is not what it must be; `field` names it
└── UnknownSubscription 404: no such subscription, or another team's
"""

from platform_defs.errors import PlatformError

NO_DEPENDENT_MODEL = "无模型依赖此表"
IN_PROGRESS = "任务正在执行中"


class ArrivalsError(PlatformError):
    """Table arrival could not do what was asked."""


class InvalidArrival(ArrivalsError):
    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field


class UnknownModel(ArrivalsError):
    pass


class AlreadyRunning(ArrivalsError):
    def __init__(self) -> None:
        super().__init__(IN_PROGRESS)


class ModelFailed(ArrivalsError):
    pass


class InvalidSubscription(ArrivalsError):
    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field


class UnknownSubscription(ArrivalsError):
    def __init__(self, subscription_id: int) -> None:
        super().__init__(f"no subscription has the id {subscription_id}")
