"""What a refused request sees: one status and one message, in the shape of the system that the path belongs to."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse

# Names on the wire where the HTTP phrase is not the name that clients of the seeds know.
_NAMES = {
    413: "payload_too_large",
    429: "rate_limited",
    500: "internal_error",
    503: "unavailable",
}


class ApiError(Exception):
    """Ends a request with a status and a message that says what was expected."""

    def __init__(
        self, status: int, message: str, *, name: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.name = name or status_name(status)
        self.headers = dict(headers or {})


def status_name(status: int) -> str:
    """`bad_request`, `unauthorized`, …: how a status is called in a body."""
    if status in _NAMES:
        return _NAMES[status]
    try:
        return HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")
    except ValueError:
        return "error"


def error_body(path: str, message: str, name: str) -> dict[str, str]:
    if _belongs(path, "/api/openlineage") or _belongs(path, "/api/open"):
        return {"status": name, "message": message}
    if _belongs(path, "/api/v1"):
        return {"error": message, "errorCode": name.upper()}
    return {"error": message}


def error_response(path: str, error: ApiError) -> JSONResponse:
    body = error_body(path, error.message, error.name)
    return JSONResponse(body, status_code=error.status, headers=error.headers)


def _belongs(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")
