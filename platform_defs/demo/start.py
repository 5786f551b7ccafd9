"""What a start of the platform does for its demo: the settings that it needs, and the lines that it prints at last."""

from dataclasses import dataclass, field
from datetime import date, timedelta

from platform_defs.demo.doors import running_platform
from platform_defs.demo.guide import guide_lines, platform_command
from platform_defs.demo.lineage import ARRIVALS_NAMESPACE
from platform_defs.demo.state import DemoError, DemoState, DemoStatus, begin, forget_begun, read_state, shop_file
from platform_defs.demo.story import SOURCE
from platform_defs.errors import PlatformError
from platform_defs.settings import Settings
from platform_defs.supervisor.output import Output
from platform_defs.supervisor.processes import DEMO_WEBHOOKS

# so many days before the demo was born the source of the harvest lists fewer works than it counts
SHORT_DAYS_BEFORE = 4


@dataclass(frozen=True)
class DemoOfStart:
    """`variables` are settings of the processes: the shop's database and namespace, and the address of its webhooks.

    `rests` says that the home has a demo which this start goes without. `note` is what the start says of a demo that it
    does not have, None if nothing.
    """

    state: DemoState | None = None
    variables: dict[str, str] = field(default_factory=dict)
    note: str | None = None
    rests: bool = False

    @property
    def wanted(self) -> bool:
        return self.state is not None

    @property
    def is_written(self) -> bool:
        return self.state is not None and self.state.status is DemoStatus.WRITTEN

    @property
    def short_day(self) -> date | None:
        """Only until the demo is written: the source is whole again after the next start."""
        if self.state is None or self.is_written:
            return None
        return self.state.born.date() - timedelta(days=SHORT_DAYS_BEFORE)


def demo_of_start(settings: Settings, *, asked: bool | None, is_new: bool, taken: str | None) -> DemoOfStart:
    """`asked` is what the operator said, if anything; `is_new` says that this start has created the database.

    `taken` names the user's tenant that has the id or the code of the demo's. The start has no demo then, and asking
    for one is an error.
    """
    embedded = not settings.db_url
    if taken is not None:
        forget_begun(settings.home)
        if asked:
            raise DemoError(f"{taken}; `platform up --no-demo` starts without it")
    state = begin(settings.home, asked=asked, embedded=embedded, is_new=is_new) if taken is None else None
    known = read_state(settings.home)
    if known is None or known.status is DemoStatus.REMOVED:
        expected = embedded and asked is None and known is None
        return DemoOfStart(note=_why_none(settings, taken) if expected else None)
    # also without --demo: what the demo left in the database still refers to them
    allowed = [*filter(None, [settings.webhook_allow]), f"{DEMO_WEBHOOKS}/32"]
    variables = {
        f"PLATFORM_SOURCE_{SOURCE.upper()}_URL": f"sqlite:///{shop_file(settings.home)}",
        "PLATFORM_WEBHOOK_ALLOW": ",".join(allowed),
        # An operator's own namespace counts; the shop's tables then are two assets each.
        "PLATFORM_ARRIVALS_NAMESPACE": settings.arrivals_namespace or ARRIVALS_NAMESPACE,
    }
    if state is not None:
        return DemoOfStart(state, variables)
    return DemoOfStart(None, variables, _why_it_rests(settings, taken), rests=True)


def _why_none(settings: Settings, taken: str | None) -> str:
    if taken is not None:
        return f"none, because {taken}"
    return f"none; `{platform_command(settings)} up --demo` brings a small shop to look at"


def _why_it_rests(settings: Settings, taken: str | None) -> str:
    because = f", because {taken}" if taken is not None else ""
    command = platform_command(settings)
    return f"not started{because}: its sources rest, and `{command} demo remove` takes all of it away, also its key"


def offer_guide(settings: Settings, output: Output, code: int) -> None:
    """Called when the writer has ended: what to try, or what to do if it failed."""
    output.writing_demo(False)
    try:
        state = read_state(settings.home)
        if code == 0 and state is not None:
            lines = guide_lines(running_platform(settings.home), state, settings, settled=state.settled)
            output.table("The demo, a small shop, is there. Follow these lines in their order:", lines)
            return
    except PlatformError as error:
        output.say(f"demo: {error}")
    output.say(
        "the demo is not complete; the platform goes on without it. `platform demo load` tries again,"
        " `platform demo remove` takes away what was written"
    )
