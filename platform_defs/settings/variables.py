"""The settings as a whole, read from the environment, and variables that are none of them."""

import re
from collections.abc import Iterable, Sequence
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
# What is set for a source by its name: PLATFORM_SOURCE_<NAME>_URL and PLATFORM_SOURCE_<NAME>_QUERIES.
_OF_SOURCES = ("URL", "QUERIES")
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
    own = re.compile(rf"PLATFORM_(SOURCE_\w+_({'|'.join(_OF_SOURCES)})|TEST_\w+|{'|'.join(known)})|{SUPERVISED}")
    unknown = sorted(name for name in names if name.startswith("PLATFORM_") and not own.fullmatch(name))
    return {name: _nearest(name, known) for name in unknown}


def _nearest(variable: str, known: Sequence[str]) -> str | None:
    # without the prefix, which alone makes any two of them similar
    name = variable.removeprefix("PLATFORM_")
    if name.startswith("SOURCE_"):
        return _nearest_of_source(name.removeprefix("SOURCE_"))
    near = get_close_matches(name, known, n=1)
    return f"PLATFORM_{near[0]}" if near else None


def _nearest_of_source(written: str) -> str:
    """What is written after PLATFORM_SOURCE_ may be a source's name alone, or end with a word that is misspelt."""
    name, _, last = written.rpartition("_")
    near = get_close_matches(last, _OF_SOURCES, n=1)
    if not name and near == ["QUERIES"]:
        return "PLATFORM_SOURCE_QUERIES"
    return f"PLATFORM_SOURCE_{(name if near else written) or '<NAME>'}_{near[0] if near else 'URL'}"
