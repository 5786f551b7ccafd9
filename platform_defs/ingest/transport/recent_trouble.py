"""What went wrong last with a request that is repeated: for people who watch a run that seems to do nothing."""

from collections import deque

from platform_defs.logs import mask_secrets


class RecentTrouble:
    """Threads that send requests tell it; whoever reports takes the newest text, and each text once."""

    def __init__(self) -> None:
        self._newest: deque[str] = deque(maxlen=1)

    def tell(self, text: str) -> None:
        self._newest.append(mask_secrets(text))

    def take(self) -> str | None:
        try:
            return self._newest.pop()
        except IndexError:
            return None
