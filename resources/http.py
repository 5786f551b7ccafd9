"""Outgoing HTTP as a Dagster resource: the door through the rate gate, with time limits and our name in the request."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

import httpx
from dagster import ConfigurableResource
from pydantic import Field

from platform_defs.http_door.door import Door
from platform_defs.http_door.network import Resolver
from platform_defs.http_door.policy import LONGEST_TIMEOUT_S, LONGEST_TOTAL_S, Timeouts
from platform_defs.rate_gate.gate import RateGate
from platform_defs.rate_gate.table import open_gate_engine
from platform_defs.settings import Settings


class HttpResource(ConfigurableResource["HttpResource"]):
    """Opens doors. How often which source may be called is the caller's to say, and the rate gate's to keep."""

    connect_timeout_s: float = Field(
        default=10.0, gt=0, le=LONGEST_TIMEOUT_S, description="Seconds to wait for a connection."
    )
    read_timeout_s: float = Field(
        default=30.0, gt=0, le=LONGEST_TIMEOUT_S, description="Seconds to wait for the next bytes."
    )
    total_timeout_s: float = Field(
        default=120.0, gt=0, le=LONGEST_TOTAL_S, description="Seconds that one attempt may take from beginning to end."
    )
    contact: str = Field(default="", description="Mail address for the User-Agent, as polite pools ask for.")

    @property
    def timeouts(self) -> Timeouts:
        """For sources whose own settings name none."""
        return Timeouts(self.connect_timeout_s, self.read_timeout_s, self.total_timeout_s)

    @contextmanager
    def door(
        self,
        *,
        transport: httpx.BaseTransport | None = None,
        resolver: Resolver | None = None,
        on_retry: Callable[[str], None] = lambda text: None,
    ) -> Iterator[Door]:
        """A door whose gate is in the database of PLATFORM_DB_URL, over connections of its own.

        Redirects are not followed unless a request's passage says so: a source that moved is a change that somebody
        should see.
        """
        agent = f"platform-defs/{version('platform-defs')}" + (f" (mailto:{self.contact})" if self.contact else "")
        engine = open_gate_engine(Settings.load().database_url)
        try:
            gate = RateGate(engine)
            with Door(gate, user_agent=agent, transport=transport, resolver=resolver, on_retry=on_retry) as door:
                yield door
        finally:
            engine.dispose()
