"""Errors that a person reads: every one is a single line that says what to do.

PlatformError
├── SettingsError       the environment asks for something impossible
├── StoreError          the database refused; see store/errors.py for its tree
├── GraphError          the graph refused; see graph/errors.py
├── HttpError           a request to another system failed; see http_door/errors.py
├── AccessError         who is asking could not be established; see access/errors.py
├── SourceError         a named data source is not known or refused a query; see sources.py
├── YamlFileError       a YAML file is refused; one line for each problem, see yaml_lines.py
└── WebhookError        a call to an address that a user chose could not be made; see webhooks/errors.py
"""


def one_line(error: BaseException) -> str:
    """One readable line of any error: the database driver's own words, never SQLAlchemy's statement and parameters."""
    cause = driver_error(error)
    text = str(cause).strip()
    return text.splitlines()[0] if text else type(cause).__name__


def driver_error(error: BaseException) -> BaseException:
    """The error of the database driver that SQLAlchemy has wrapped; any other error as it is."""
    original = getattr(error, "orig", None)
    return original if isinstance(original, BaseException) else error


class PlatformError(Exception):
    """Base of all errors that end a command with one line and exit code 1."""


class SettingsError(PlatformError):
    """A PLATFORM_* variable is missing, malformed or contradicts another."""


class StoreError(PlatformError):
    """The relational store could not do what was asked."""


class GraphError(PlatformError):
    """The graph store could not do what was asked."""


class HttpError(PlatformError):
    """A request to another system could not be sent, or its answer is of no use."""


class AccessError(PlatformError):
    """A key, an assertion or a tenant was refused."""
