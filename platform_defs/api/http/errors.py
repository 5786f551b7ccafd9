"""How a request is refused: with a status and a message, in the shape that clients of the path's system expect."""

from collections.abc import Callable, Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse

# Names in bodies where the HTTP phrase is not the name that clients know.
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


def store_down(store: str = "database", *, refuses: bool = False) -> ApiError:
    """The 503 while a store does not answer, or refuses because an operator must mend something there."""
    trouble = "refuses what it is asked" if refuses else "does not answer"
    return ApiError(503, f"the {store} {trouble}; try again", headers={"Retry-After": "1"})


def status_name(status: int) -> str:
    """The name of a status in a body: `bad_request`, `unauthorized`, …"""
    if status in _NAMES:
        return _NAMES[status]
    try:
        return HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")
    except ValueError:
        return "error"


# Makes the body of an answer from the message and the name of the status.
ErrorShape = Callable[[str, str], dict[str, str]]


def status_and_message(message: str, name: str) -> dict[str, str]:
    return {"status": name, "message": message}


def error_and_code(message: str, name: str) -> dict[str, str]:
    return {"error": message, "errorCode": name.upper()}


def error_alone(message: str, name: str) -> dict[str, str]:
    return {"error": message}


class ErrorResponses:
    """Builds the answer to a refused request in the shape of the system that the path belongs to.

    `shapes` maps the first part of a system's paths, such as `/api/v1`, to its shape; other paths get `error_alone`.
    """

    def __init__(self, shapes: Mapping[str, ErrorShape]) -> None:
        self._shapes = dict(shapes)

    def response(self, path: str, error: ApiError) -> JSONResponse:
        body = self._shape(path)(error.message, error.name)
        return JSONResponse(body, status_code=error.status, headers=error.headers)

    def _shape(self, path: str) -> ErrorShape:
        for prefix, shape in self._shapes.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                return shape
        return error_alone
