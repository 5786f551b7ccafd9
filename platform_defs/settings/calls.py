"""Settings of calls to other systems: which networks users' URLs may reach, and the secrets of webhooks."""

from ipaddress import IPv4Network, IPv6Network, ip_network
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, SecretStr, field_validator

from platform_defs.settings.base import Topic


class CallSettings(Topic):
    """The time zone that timestamps in webhooks have, and what outgoing requests may reach."""

    zone: str = Field("UTC", description="Time zone of the deployment, for webhook timestamps and due times")
    http_allow: str = Field(
        "", description="Private networks (CIDRs) that users' URLs may reach in any system: 10.1.0.0/16,fd00::/8"
    )
    webhook_allow: str = Field("", description="Further private networks (CIDRs), for webhook callbacks alone")
    webhook_key: SecretStr = Field(
        SecretStr(""),
        description="Key that webhook secrets are encrypted with, or env:NAME, file:PATH; empty means a file in the"
        " home. Processes on several machines need the same one",
    )
    webhook_env: str = Field(
        "",
        description="Variables (patterns) that subscriptions made over HTTP with a key without tenant may refer to; a"
        " tenant's key may refer to WEBHOOK_<CODE>__*, the command to any",
    )

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"no such time zone: {value!r}; expected a name such as Europe/Berlin") from None
        return value

    @field_validator("http_allow", "webhook_allow")
    @classmethod
    def _check_networks(cls, value: str) -> str:
        try:
            _parse_networks(value)
        except ValueError as error:
            raise ValueError(f"expected networks such as 10.1.0.0/16, separated by commas: {error}") from None
        return value

    @property
    def http_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Private networks that users' URLs may reach in any system."""
        return _parse_networks(self.http_allow)

    @property
    def webhook_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Private networks that webhook callbacks may reach: those of any system, and further ones."""
        return (*self.http_networks, *_parse_networks(self.webhook_allow))


def _parse_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
