"""Finds the node patterns of a Cypher template, for the proof that each carries the tenant."""

import re

_CLAUSE = re.compile(
    r"\b(?:MATCH|MERGE)\b(.*?)(?=\b(?:MATCH|MERGE|WHERE|SET|ON CREATE|RETURN|WITH|DELETE|DETACH|REMOVE|UNWIND)\b|$)",
    re.DOTALL,
)
_NODE = re.compile(r"\((\w*)([^()]*)\)")


def node_patterns(template: str) -> list[str]:
    """All node patterns but repeated mentions of a variable that a pattern before has bound."""
    found: list[str] = []
    bound: set[str] = set()
    for clause in _CLAUSE.finditer(template):
        for node in _NODE.finditer(clause[1]):
            variable, rest = node[1], node[2]
            if variable in bound and not rest.strip():
                continue
            bound.add(variable)
            found.append(node[0])
    return found
