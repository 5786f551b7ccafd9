"""Path parameters that end before a colon, so that `/chains/{chain_id}:start` is never the chain named `x:start`."""

from starlette.convertors import Convertor, register_url_convertor


class IdConvertor(Convertor[str]):
    regex = "[^/:]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("id", IdConvertor())

CHAIN = "/chains/{chain_id:id}"
RUN = "/runs/{run_id:id}"
NODE = RUN + "/nodes/{node_id:id}"
