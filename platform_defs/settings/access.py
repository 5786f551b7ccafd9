"""Settings of the API and the UI: where they listen, and whom the API lets in."""

from typing import Literal

from pydantic import Field

from platform_defs.settings.base import MEBIBYTE, Topic


class AccessSettings(Topic):
    """The listeners, keys and assertions of gateways."""

    gateway_keys: str = Field("", description="Gateway public keys: kid=file:PATH,… (current and previous)")
    gateway_issuer: str = Field("", description="Expected iss of gateway assertions")
    gateway_audience: str = Field("", description="Expected aud of gateway assertions")
    auth: Literal["keys", "open"] = Field("keys", description="'open' is only allowed on a loopback bind")
    body_limit: int = Field(16 * MEBIBYTE, gt=0, description="Bytes of a request body after decompression")
    api_host: str = Field("127.0.0.1", description="Address the API binds to")
    api_port: int = Field(8000, ge=1, le=65535, description="Port of the API")
    ui_host: str = Field("127.0.0.1", description="Address the Dagster UI binds to")
    ui_port: int = Field(3000, ge=1, le=65535, description="Port of the Dagster UI")
