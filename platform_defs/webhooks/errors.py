"""What can go wrong with subscriptions and deliveries.

WebhookError (see arrivals/errors.py)
├── InvalidSubscription     400: `field` names what is wrong with it
├── UnknownSubscription     404: no such subscription, or another team's
├── UnknownDelivery         404: no such delivery, or another team's
├── NotRedeliverable        409: it is not a dead letter, or nobody is subscribed any more
└── AddressRefused          the callback is on a network that nobody allowed
"""

from platform_defs.arrivals.errors import WebhookError


class InvalidSubscription(WebhookError):
    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field


class UnknownSubscription(WebhookError):
    def __init__(self, subscription_id: int) -> None:
        super().__init__(f"no subscription has the id {subscription_id}")


class UnknownDelivery(WebhookError):
    def __init__(self, delivery_id: int) -> None:
        super().__init__(f"no delivery has the id {delivery_id}")


class NotRedeliverable(WebhookError):
    pass


class AddressRefused(WebhookError):
    pass
