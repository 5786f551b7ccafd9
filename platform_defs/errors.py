"""The root of all errors that a person reads: each message is one line that says what was expected or what to do.

PlatformError
├── SettingsError       a PLATFORM_* variable is missing, malformed or contradicts another
├── StoreError          the database; tree in store/errors.py
├── GraphError          the graph; tree in graph/errors.py
├── HttpError           requests to other systems; tree in http_door/errors.py
├── AccessError         tenants, keys and gateway assertions; tree in access/errors.py
├── WorkError           rows of work and their processes; tree in work/errors.py
├── WebhookError        calls to addresses that users chose; tree in webhooks/errors.py
├── SourceError         a named data source is not known or refused a query; in sources/errors.py
├── YamlFileError       a YAML file is refused, with one line for each problem; in yaml_lines.py
├── ExpressionError     templates, JSONPaths and patterns; tree in expressions/errors.py
├── IngestError         ingest; tree in ingest/errors.py
├── LineageError        lineage; tree in lineage/errors.py
├── ArrivalsError       table arrival; tree in arrivals/errors.py
├── ChainsError         job chains; tree in chains/errors.py
├── ReloadFailed        the code server did not answer or did not load; in runner/code_server.py
├── DemoError           the demo could not be written or removed; in demo/state.py
├── NoPlatform          there is no embedded database where a command looks for one; in home.py
├── StartFailed         `platform up` did not become ready; in supervisor/child.py
├── AlreadyUp           `platform up` runs on this home already; in supervisor/home.py
└── PortTaken           another program listens on a port; in supervisor/ports.py
"""

_INSECURE = 2061
_WHAT_TO_DO = {
    # MySQL asks for the password itself when it is wrong, and also when the server was restarted since its last use.
    _INSECURE: " The password is wrong, or the server has forgotten it since its restart: remove ssl_disabled from the"
    " URL, or connect through ?unix_socket=PATH"
}


def one_line(error: BaseException) -> str:
    """One readable line of any error: the database driver's own words, never SQLAlchemy's statement and parameters."""
    cause = driver_error(error)
    if isinstance(cause, OSError) and cause.filename and cause.strerror:
        return f"{cause.filename}: {cause.strerror}"
    first, *others = str(cause).strip().splitlines() or [type(cause).__name__]
    # A line that ends with a colon announces the reason, which is on the next one.
    line = f"{first} {others[0].strip()}" if others and first.endswith(":") else first
    return line + _WHAT_TO_DO.get(getattr(cause, "errno", 0), "")


def driver_error(error: BaseException) -> BaseException:
    """The error of the database driver that SQLAlchemy has wrapped; any other error as it is."""
    original = getattr(error, "orig", None)
    return original if isinstance(original, BaseException) else error


class PlatformError(Exception):
    """Base of all errors that end a command with one line and exit code 1.

    `advice` names the command that helps. The command line prints it behind the message; answers over HTTP do not.
    """

    advice = ""


class SettingsError(PlatformError):
    """A PLATFORM_* variable is missing, malformed or contradicts another."""


class StoreError(PlatformError):
    """The relational store could not do what was asked."""


class GraphError(PlatformError):
    """The graph store could not do what was asked; `tenant` is the one whose graph was written, if that is known."""

    tenant: int | None = None


class HttpError(PlatformError):
    """A request to another system could not be sent, or its answer is of no use."""


class AccessError(PlatformError):
    """A key, an assertion or a tenant was refused."""
