"""What can go wrong with webhooks and with other calls to addresses that users chose.

WebhookError
├── UrlRefused              the text is no URL that may be called; the message never repeats a password in it
├── AddressRefused          the host cannot be resolved, or is on a private network that no operator allowed
├── SecretError             a secret cannot be read, decrypted or understood; the message never shows its value
├── NoKey                   503: a literal secret cannot be encrypted, because the platform's home is not there
├── UnknownDelivery         404: no such delivery, or another team's
└── NotRedeliverable        409: the delivery is not a dead letter, or all its subscriptions are disabled or removed
"""

from pathlib import Path

from platform_defs.errors import PlatformError


class WebhookError(PlatformError):
    """A call to an address that a user chose could not be prepared or made."""


class UrlRefused(WebhookError):
    pass


class AddressRefused(WebhookError):
    pass


class SecretError(WebhookError):
    pass


class NoKey(WebhookError):
    def __init__(self, home: Path) -> None:
        super().__init__("the platform has no key to encrypt a literal secret with")
        self.advice = (
            f"set PLATFORM_HOME to the home of the platform (now {home}, which does not exist) or PLATFORM_WEBHOOK_KEY"
            " to its key, or give the secret as env:NAME"
        )


class UnknownDelivery(WebhookError):
    advice = "`platform webhooks deliveries` lists them"

    def __init__(self, delivery_id: int) -> None:
        super().__init__(f"no delivery has the id {delivery_id}")


class NotRedeliverable(WebhookError):
    pass
