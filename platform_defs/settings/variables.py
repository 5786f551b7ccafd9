"""The settings as a whole, read from the environment, and variables that are none of them."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from platform_defs.errors import SettingsError
from platform_defs.settings.access import AccessSettings
from platform_defs.settings.calls import CallSettings
from platform_defs.settings.lineage import LineageSettings
from platform_defs.settings.runs import RunSettings
from platform_defs.settings.stores import StoreSettings
from platform_defs.settings.systems import SystemSettings

# set by `platform up` for the processes that it starts
SUPERVISED = "PLATFORM_SUPERVISED"
# How pydantic begins to say what is wrong with a number, a boolean or a word of a list.
_INPUT = "Input should be "


class Settings(StoreSettings, AccessSettings, CallSettings, RunSettings, LineageSettings, SystemSettings):
    """The settings of an operator. `Settings.load()` reports a mistake in one line that names the variable."""

    @classmethod
    def load(cls) -> "Settings":
        try:
            return cls()
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False)
            raise SettingsError("; ".join(map(_explain, problems))) from None


def _explain(problem: ErrorDetails) -> str:
    """One line of a problem. The value is named only where it was to be a number or a word, which are no secrets."""
    variable, message = f"PLATFORM_{str(problem['loc'][0]).upper()}", problem["msg"]
    if not message.startswith(_INPUT):
        return f"{variable}: {message.removeprefix('Value error, ')}"
    expected = message.removeprefix(_INPUT).partition(", unable")[0]
    expected = expected.replace("a valid integer", "a whole number").replace("a valid boolean", "true or false")
    if expected.startswith(("greater", "less")):
        expected = f"a number {expected}"
    return f"{variable}: expected {expected}, got {problem['input']!r}"


def unknown_variables(names: Iterable[str]) -> dict[str, str | None]:
    """The PLATFORM_* names that no setting has, each with the nearest that there is, if one is near."""
    known = [name.upper() for name in Settings.model_fields]
    own = re.compile(rf"PLATFORM_(SOURCE_\w+_(URL|QUERIES)|TEST_\w+|{'|'.join(known)})|{SUPERVISED}")
    found: dict[str, str | None] = {}
    for name in sorted(name for name in names if name.startswith("PLATFORM_") and not own.fullmatch(name)):
        # without the prefix, which alone makes any two of them similar
        near = get_close_matches(name.removeprefix("PLATFORM_"), known, n=1)
        found[name] = f"PLATFORM_{near[0]}" if near else None
    return found
