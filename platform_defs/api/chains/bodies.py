"""The bodies of requests to job chains, checked, with every problem in one line."""

from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from platform_defs.api.http.bodies import parse_json, read_body
from platform_defs.api.http.errors import ApiError
from platform_defs.canonical import canonical_hash
from platform_defs.chains.nodes.cfg import describe_errors
from platform_defs.chains.request_keys import MAX_KEY, RequestKey
from platform_defs.chains.stored_definitions import MAX_NAME

HEADER = "Idempotency-Key"
MAX_TEXT = 65_535
# MySQL keeps a version in 64 bits.
MAX_VERSION = 2**63 - 2
# What the examples of the documentation create: a request that is pasted as it stands must work.
_NAME = "try_it"
_CFG = {"message": "hello from ${run.id}"}
_DAG = {"nodes": [{"id": "hello", "type": "print", "cfg": _CFG}]}

Body = TypeVar("Body", bound=BaseModel)


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("expected text in Unicode, got half of a surrogate pair") from None
    return text


def _one_line(text: str) -> str:
    stripped = text.strip()
    if not stripped:
        raise ValueError("expected a text that is not blank")
    if not stripped.isprintable():
        raise ValueError("expected one line of printable characters")
    return stripped


Name = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(_storable), AfterValidator(_one_line)]
Text = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_storable)]
# Fields of an answer that a client may send back with what it changed; they are not looked at.
Ignored = Annotated[Any, Field(exclude=True, description="Ignored: part of the answers")]


class _RequestBody(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True)


class _Definition(_RequestBody):
    name: Name = Field(examples=[_NAME])
    description: Text | None = None
    created_at: Ignored = None
    updated_at: Ignored = None


class NewChain(_Definition):
    """A chain to be created."""

    dag_json: Any = Field(
        description="The DAG, as a JSON object or as the text of one: #/components/schemas/Dag", examples=[_DAG]
    )
    enabled: bool | None = Field(None, description="null means true")


class ChangedChain(_Definition):
    """What a chain becomes; `version` is the one that was read."""

    dag_json: Any = Field(
        description="The DAG, as a JSON object or as the text of one: #/components/schemas/Dag", examples=[_DAG]
    )
    version: int = Field(ge=1, le=MAX_VERSION)
    enabled: bool | None = Field(None, description="Changed by :enable and :disable; another value than now is refused")
    chain_id: Ignored = None


class NewJob(_Definition):
    """A reusable job to be created."""

    type: Name = Field(description="The node type", examples=["print"])
    config_json: Any = Field(
        description="The cfg of the node type, as a JSON object or as the text of one", examples=[_CFG]
    )
    enabled: bool | None = Field(None, description="null means true")


class ChangedJob(_Definition):
    """What a job becomes; `version` is the one that was read."""

    type: Name = Field(description="The node type", examples=["print"])
    config_json: Any = Field(
        description="The cfg of the node type, as a JSON object or as the text of one", examples=[_CFG]
    )
    version: int = Field(ge=1, le=MAX_VERSION)
    enabled: bool | None = Field(None, description="Changed by :enable and :disable; another value than now is refused")
    job_id: Ignored = None


class Start(_RequestBody):
    """What a run is started with. The body may be left out."""

    params: dict[str, Any] | None = Field(None, description="`${params.x}` in the cfg of nodes; at most 1 MiB")


class Stop(_RequestBody):
    """The body may be left out."""

    reason: Text | None = Field(None, description="Kept in the audit")


class NodeAction(_RequestBody):
    """A retry or a complete. The body may be left out."""

    artifact_json: Any = Field(None, description="The node's artifact: the text of a JSON value, or a value; 1 MiB")
    reason: Text | None = Field(None, description="Kept on the node and in the audit")


class NodeRetry(NodeAction):
    clear_checkpoint: bool | None = Field(None, description="true: the new attempt begins without the checkpoint")


def parse_body(model: type[Body], body: Any) -> Body:
    if not isinstance(body, dict):
        raise ApiError(400, "body: expected a JSON object")
    try:
        return model.model_validate(body)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, place)) or 'body'}: {text}" for place, text in describe_errors(error)]
        raise ApiError(400, "; ".join(problems)) from None


async def optional_json_body(request: Request) -> Any:
    """The parsed body, {} if there is none; as a dependency after the one that authenticates."""
    content = await read_body(request, request.app.state.settings.body_limit)
    return parse_json(content) if content.strip() else {}


OptionalJsonBody = Annotated[Any, Depends(optional_json_body)]


def request_key(request: Request, principal: str, asked: str, body: Any) -> RequestKey | None:
    """The Idempotency-Key of the request, if it has one; it counts for this caller and for what is asked."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not 1 <= len(key) <= MAX_KEY or not (key.isascii() and key.isprintable()):
        raise ApiError(400, f"{HEADER}: expected 1 to {MAX_KEY} printable ASCII characters")
    return RequestKey(f"{principal} {asked}", key, canonical_hash(body))


def body_schema(model: type[BaseModel], *, required: bool) -> dict[str, Any]:
    """The OpenAPI field `requestBody`."""
    return {"required": required, "content": {"application/json": {"schema": model.model_json_schema()}}}
