"""The codes that ingest writes into its tables, as the seeds name them."""

from enum import StrEnum


class Operation(StrEnum):
    HARVEST = "HARVEST"
    BACKFILL = "BACKFILL"
    UPDATE = "UPDATE"


# A small number is urgent.
PRIORITIES = {Operation.HARVEST: 10, Operation.UPDATE: 50, Operation.BACKFILL: 100}


class EndpointRole(StrEnum):
    SEARCH = "SEARCH"
    DETAIL = "DETAIL"
    METRICS = "METRICS"


class PaginationType(StrEnum):
    OFFSET = "OFFSET"
    PAGE = "PAGE"
    TOKEN = "TOKEN"
    URL = "URL"
    TIME = "TIME"


class AuthType(StrEnum):
    NONE = "NONE"
    API_KEY = "API_KEY"
    BEARER = "BEARER"
    OAUTH2 = "OAUTH2"
    CUSTOM = "CUSTOM"


class Location(StrEnum):
    """Where a parameter or a credential goes in a request."""

    QUERY = "QUERY"
    HEADER = "HEADER"
    PATH = "PATH"
    BODY = "BODY"


class RepeatedToken(StrEnum):
    """What it means if a page names as its next token the very token that it was asked for with."""

    # the source remembers the place itself, and the same token gives the next page
    CONTINUES = "CONTINUES"
    # there is no next page
    ENDS = "ENDS"


class NullPolicy(StrEnum):
    OMIT = "omit"
    EMPTY = "empty"
    ERROR = "error"


class SliceDimension(StrEnum):
    TIME = "TIME"
    PAGE = "PAGE"
    ID = "ID"


class PlanStatus(StrEnum):
    DRAFT = "DRAFT"
    SLICING = "SLICING"
    # all slices have their tasks
    READY = "READY"
    # some slices could not be queued yet, or ended incomplete
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    # every slice is done: the window counts for the watermark
    COMPLETED = "COMPLETED"
    # an operator took it back, or another generation has taken its place
    CANCELLED = "CANCELLED"

    @property
    def is_open(self) -> bool:
        """Whether materialising the window again continues this plan instead of beginning a new generation."""
        return self in (PlanStatus.DRAFT, PlanStatus.SLICING, PlanStatus.READY, PlanStatus.PARTIAL)


class SliceStatus(StrEnum):
    PENDING = "PENDING"
    READY = "READY"
    FAILED = "FAILED"
    # replaced by smaller slices of the same plan, which count in its place
    SPLIT = "SPLIT"
    # its plan was cancelled before it had a task
    CANCELLED = "CANCELLED"


class TaskStatus(StrEnum):
    QUEUED = "QUEUED"
    DISPATCHED = "DISPATCHED"
    EXECUTING = "EXECUTING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    PARTIAL = "PARTIAL"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        return self in (TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.PARTIAL, TaskStatus.CANCELLED)


class RunStatus(StrEnum):
    PLANNED = "PLANNED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class BatchStatus(StrEnum):
    PLANNED = "PLANNED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    SKIPPED = "SKIPPED"
    FAILED = "FAILED"


class CursorType(StrEnum):
    TIME = "TIME"
    ID = "ID"
    TOKEN = "TOKEN"


class Direction(StrEnum):
    FORWARD = "FORWARD"
    BACKFILL = "BACKFILL"


class NamespaceScope(StrEnum):
    GLOBAL = "GLOBAL"
    EXPR = "EXPR"
    CUSTOM = "CUSTOM"


class Trigger(StrEnum):
    """Who asked for a plan."""

    SCHEDULE = "SCHEDULE"
    MANUAL = "MANUAL"
    SIGNAL = "SIGNAL"
    REPLAY = "REPLAY"


class ErrorLevel(StrEnum):
    """How the seed grades errors (12.1), by what follows from them."""

    # the task waits and is tried again
    TRANSIENT = "L1"
    # the request is wrong: its task fails
    REQUEST = "L2"
    # one record is set aside, and its batch goes on
    DATA = "L3"
    # the endpoint is blocked until an operator unblocks it
    FATAL = "L4"
