"""The node types that chains of these tests may use."""

from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from platform_defs.chains.nodes.port import NodeContext, NodeResult, NodeTypes


class PrintCfg(BaseModel):
    message: str


@dataclass(frozen=True)
class Print:
    name: str = "print"
    cfg_model: type[BaseModel] = PrintCfg

    def execute(self, context: NodeContext, cfg: PrintCfg) -> NodeResult:
        context.log(cfg.message)
        return NodeResult()


@pytest.fixture
def types() -> NodeTypes:
    return NodeTypes({"print": Print()})
