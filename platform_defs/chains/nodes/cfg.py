"""What the cfg models of all node types have in common: camelCase on the wire, no unknown fields, literal fields."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel


class NodeCfg(BaseModel):
    """The base of the built-in cfg models.

    `literal_fields` names fields whose text is executed by something else (SQL, a shell): no expression is evaluated
    in them, because a value could change what is executed. `url_fields` names fields with a URL: values within it are
    percent-encoded, because they could change which resource is meant.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)

    literal_fields: ClassVar[frozenset[str]] = frozenset()
    url_fields: ClassVar[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class SpecialFields:
    """The fields of a cfg model, which may be a plug-in's, that are not rendered as all others are."""

    literal: frozenset[str] = frozenset()
    url: frozenset[str] = frozenset()

    @classmethod
    def of(cls, model: type[BaseModel]) -> "SpecialFields":
        named: Any = model
        return cls(
            frozenset(getattr(named, "literal_fields", ())),
            frozenset(getattr(named, "url_fields", ())),
        )


def describe_errors(error: ValidationError) -> list[tuple[tuple[str | int, ...], str]]:
    """The place and the text of each problem; the refused value is never repeated, since it may be a secret."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return [(tuple(problem["loc"]), _problem_text(problem["type"], problem["msg"])) for problem in found]


def _problem_text(kind: str, message: str) -> str:
    match kind:
        case "extra_forbidden":
            return "this field is not known"
        case "missing":
            return "expected a value, it is missing"
    return message.removeprefix("Value error, ")
