"""The node type `print`: writes a message into the log of its step."""

from typing import Any

from pydantic import Field

from platform_defs.canonical import canonical_json
from platform_defs.chains.nodes.cfg import NodeCfg
from platform_defs.chains.nodes.port import NodeContext, NodeResult


class PrintCfg(NodeCfg):
    """Writes a message into the log of the node's step."""

    message: Any = Field("", description="What is written; anything but a text is written as JSON.")


class PrintExecutor:
    name = "print"
    cfg_model = PrintCfg

    def execute(self, context: NodeContext, cfg: PrintCfg) -> NodeResult:
        text = cfg.message if isinstance(cfg.message, str) else canonical_json(cfg.message)
        for line in text.splitlines():
            context.log(line)
        return NodeResult(artifact={"message": cfg.message})
