"""SourceError (a PlatformError): a source is not known, or its database says something against a query."""

from urllib.parse import quote

from sqlalchemy.engine import URL

from platform_defs.errors import PlatformError, driver_error

MAX_MESSAGE = 2000


class SourceError(PlatformError):
    """A source is not known or refused a query; the message is one line without the password of the source.

    `is_transient`: the source is down, overloaded or busy, so that the same query may succeed later.
    """

    def __init__(self, message: str, *, is_transient: bool = False) -> None:
        super().__init__(message)
        self.is_transient = is_transient


def error_text(error: BaseException, url: URL) -> str:
    """What the database said, in one line without the password of the source."""
    text = " ".join(str(driver_error(error)).split())
    if url.password:
        for secret in (str(url.password), quote(str(url.password), safe="")):
            text = text.replace(secret, "***")
    return text[:MAX_MESSAGE]
