"""Writes a curl command for every operation of the OpenAPI document, with a body that its schema allows."""

import json
from collections.abc import Mapping
from typing import Any

# The page at /docs puts its own address in its place.
BASE = "http://127.0.0.1:8000"
MAX_DEPTH = 8


def add_curl_samples(document: dict[str, Any]) -> None:
    """Each operation gets `x-codeSamples`, which also other viewers of OpenAPI show."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            sample = {"lang": "Shell", "label": "curl", "source": curl(document, path, method, operation)}
            operation["x-codeSamples"] = [sample]


def curl(document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> str:
    """The command; `$KEY` is an API key, and capitals stand for what the caller must fill in."""
    query = []
    for parameter in operation.get("parameters", ()):
        name, schema = parameter["name"], parameter.get("schema", {})
        given = parameter.get("example", schema.get("example", next(iter(schema.get("examples", ())), None)))
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", str(given or name.upper()))
        elif parameter["in"] == "query" and parameter.get("required"):
            query.append(f"{name}={given or name.upper()}")
    words = ["curl", *([] if method == "get" else ["-X", method.upper()])]
    words.append(_quoted(BASE + path + ("?" + "&".join(query) if query else "")))
    if operation.get("security"):
        words += ["-H", '"Authorization: Bearer $KEY"']
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is not None:
        body = content.get("example", example(content.get("schema", {}), document))
        words += ["-H", "'Content-Type: application/json'", "-d", _quoted(json.dumps(body, ensure_ascii=False))]
    return " ".join(words)


def example(schema: Mapping[str, Any], document: Mapping[str, Any], depth: int = 0) -> Any:
    """A value of the schema: what it gives as an example, else the shortest one with all required fields."""
    if "$ref" in schema:
        schema = document.get("components", {}).get("schemas", {}).get(schema["$ref"].rpartition("/")[2], {})
    for given in ("example", "const", "default"):
        if schema.get(given) is not None:
            return schema[given]
    for listed in ("examples", "enum"):
        if schema.get(listed):
            return schema[listed][0]
    alternatives = [one for one in schema.get("anyOf", schema.get("oneOf", ())) if one.get("type") != "null"]
    if alternatives and depth < MAX_DEPTH:
        return example(alternatives[0], document, depth + 1)
    kind = schema.get("type", "object")
    match kind[0] if isinstance(kind, list) else kind:
        case "object" if depth < MAX_DEPTH:
            fields = schema.get("properties", {})
            return {name: example(fields.get(name, {}), document, depth + 1) for name in schema.get("required", ())}
        case "array":
            items = schema.get("items", {})
            return [example(items, document, depth + 1)] if schema.get("minItems") and depth < MAX_DEPTH else []
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "string":
            return str(schema.get("title", "text")).upper()
    return {}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
