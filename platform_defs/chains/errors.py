"""What can go wrong with chains and their runs; each has a stable `errorCode` on the wire.

ChainsError
├── InvalidChain        400: a chain or job is refused; `problems` has one line for each problem
├── Unknown             400: no such chain, job, run or node (the seed answers 400, not 404)
├── NameTaken           400: another chain or job has this name
└── Conflict            409: the present state does not allow it
"""

from collections.abc import Sequence

from platform_defs.errors import PlatformError

_WHERE_TO_LOOK = {
    "CHAIN_NOT_FOUND": "`platform chains list` shows all",
    "RUN_NOT_FOUND": "`platform chains runs` shows the newest",
    "NODE_NOT_FOUND": "`platform chains nodes` shows those of a run",
}


class ChainsError(PlatformError):
    """A chain or a run could not do what was asked. `code` is the errorCode of the answer."""

    code = "CHAIN_ERROR"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or type(self).code


class InvalidChain(ChainsError):
    code = "CHAIN_INVALID"

    def __init__(self, problems: Sequence[str], *, code: str | None = None) -> None:
        super().__init__("; ".join(problems), code=code)
        self.problems = tuple(problems)


class Unknown(ChainsError):
    code = "NOT_FOUND"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.advice = _WHERE_TO_LOOK.get(self.code, "")


class NameTaken(ChainsError):
    code = "NAME_TAKEN"


class Conflict(ChainsError):
    code = "CONFLICT"
