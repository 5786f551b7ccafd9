"""Whose lateness is compared with what is shown of it: all of a few models, thousands of them in turns."""

from collections.abc import Mapping, Sequence

from platform_defs.arrivals.lateness import LateBatch

# Dagster takes half a millisecond to say what one check shows.
AT_ONCE = 500


class CheckRotation:
    """Those of which something else is late than before come at once, whoever's turn it is."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._start = 0
        self._shown: Mapping[str, Sequence[LateBatch]] = {}

    def next(self, late: Mapping[str, Sequence[LateBatch]]) -> dict[str, Sequence[LateBatch]]:
        model_ids = list(late)
        if self._start >= len(model_ids):
            self._start = 0
        turn = set(model_ids[self._start : self._start + self._at_once])
        self._start += self._at_once
        return {
            model_id: found
            for model_id, found in late.items()
            if model_id in turn or found != self._shown.get(model_id, ())
        }

    def shown(self, late: Mapping[str, Sequence[LateBatch]]) -> None:
        """To be called once what was next is shown."""
        self._shown = late
