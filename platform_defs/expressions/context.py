"""What a template is rendered against: named values, and the instant that now() gives."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Context:
    """The names that expressions may refer to, and the instant that now() gives: the same for a whole request."""

    names: Mapping[str, Any]
    now: datetime

    def __post_init__(self) -> None:
        if self.now.tzinfo is None:
            raise ValueError("expected an instant with a zone as the context's now")

    def extended(self, names: Mapping[str, Any]) -> "Context":
        """This context with further root names, or with others in their place; the instant stays."""
        return Context({**self.names, **names}, self.now)
