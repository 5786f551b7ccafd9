"""Ids in paths. They end before a colon, so that `/chains/x:start` starts chain `x` and is not the chain `x:start`."""

from starlette.convertors import Convertor, register_url_convertor


class IdConvertor(Convertor[str]):
    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("id", IdConvertor())


def path_id(name: str) -> str:
    """The parameter as it is written in a path: `/chains/` + path_id("chain_id")."""
    return f"{{{name}:id}}"
