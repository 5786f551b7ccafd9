"""Outgoing HTTP as a Dagster resource: one client, with timeouts, that names the platform to those it calls."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import httpx
from dagster import ConfigurableResource
from pydantic import Field


class HttpResource(ConfigurableResource["HttpResource"]):
    """Opens clients; what may be called how often is decided by who calls."""

    connect_timeout_s: float = Field(default=10.0, gt=0, description="Seconds to wait for a connection.")
    read_timeout_s: float = Field(default=30.0, gt=0, le=120, description="Seconds to wait for the next bytes.")
    contact: str = Field(default="", description="Mail address for the User-Agent, as polite pools ask for.")

    @contextmanager
    def client(self, *, transport: httpx.BaseTransport | None = None) -> Iterator[httpx.Client]:
        """Redirects are not followed: a source that moved is a change that somebody should see."""
        agent = f"platform-defs/{version('platform-defs')}" + (f" (mailto:{self.contact})" if self.contact else "")
        timeout = httpx.Timeout(self.read_timeout_s, connect=self.connect_timeout_s)
        with httpx.Client(timeout=timeout, headers={"User-Agent": agent}, transport=transport) as client:
            yield client
