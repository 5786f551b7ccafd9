"""A small dbt project with partly documented models, the commands of dbt-ol on it, and the lineage that follows.

dbt's schema facet lists documented columns only, a test of a model names the model as input, and structured logs use
other job names and send one event for every statement. The lineage is the same after each command.
"""

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platform_defs.graph.model import Edge, Node
from platform_defs.graph.port import GraphStore

# in this order: each is one invocation of dbt-ol
COMMANDS = {
    "1_run": ["run"],
    "2_test": ["test"],
    "3_select": ["run", "--select", "orders"],
    "4_structured": ["--consume-structured-logs", "run"],
    "5_build": ["build", "--exclude", "resource_type:seed"],
}

FILES = {
    "dbt_project.yml": """
name: shop
profile: shop
version: "1.0.0"
models: {shop: {+materialized: table}}
""",
    "profiles.yml": """
shop:
  target: dev
  outputs: {dev: {type: duckdb, path: shop.duckdb, threads: 1}}
""",
    "seeds/raw_orders.csv": "id,user_id,status,day\n1,1,placed,2026-01-01\n2,2,returned,2026-01-02\n",
    "seeds/raw_payments.csv": "id,order_id,method,cents\n1,1,card,1000\n2,2,coupon,500\n",
    "models/stg_orders.sql": """
select id as order_id, user_id as customer_id, status, day from {{ source('raw', 'raw_orders') }}
""",
    "models/stg_payments.sql": """
select id, order_id, method, cents / 100 as amount from {{ source('raw', 'raw_payments') }}
""",
    "models/orders.sql": """
with paid as (select order_id, sum(amount) as amount from {{ ref('stg_payments') }} group by order_id)
select o.order_id, o.customer_id, o.status, paid.amount
from {{ ref('stg_orders') }} as o left join paid on paid.order_id = o.order_id
""",
    # only some of the columns are documented: dbt's schema facet lists no others
    "models/schema.yml": """
sources:
  - name: raw
    schema: main
    tables: [{name: raw_orders}, {name: raw_payments}]
models:
  - name: stg_orders
    columns:
      - {name: order_id, tests: [unique, not_null]}
      - {name: status}
  - name: orders
    columns:
      - {name: order_id, tests: [not_null]}
      - {name: customer_id}
""",
}


DERIVED = {
    "orders.amount>stg_payments.amount",
    "orders.customer_id>stg_orders.customer_id",
    "orders.order_id>stg_orders.order_id",
    "orders.status>stg_orders.status",
    "stg_orders.customer_id>raw_orders.user_id",
    "stg_orders.day>raw_orders.day",
    "stg_orders.order_id>raw_orders.id",
    "stg_orders.status>raw_orders.status",
    "stg_payments.amount>raw_payments.cents",
    "stg_payments.id>raw_payments.id",
    "stg_payments.method>raw_payments.method",
    "stg_payments.order_id>raw_payments.order_id",
}
JOINED = {
    "raw_orders>stg_orders",
    "raw_payments>stg_payments",
    "stg_orders>orders",
    "stg_payments>orders",
}


class DbtProject:
    """The project in a folder of its own, with the tables of its seeds; `programs` is the folder that has dbt-ol."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._programs = programs
        for name, text in FILES.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        self._execute("dbt", ["seed"], {})

    def run(self, command: str, transport: Mapping[str, Any]) -> None:
        """Executes one of COMMANDS; its events go where the transport of openlineage-python says."""
        settings = {"OPENLINEAGE__TRANSPORT": json.dumps(transport), "OPENLINEAGE_NAMESPACE": "dbt"}
        self._execute("dbt-ol", COMMANDS[command], settings)

    def _execute(self, program: str, arguments: list[str], settings: Mapping[str, str]) -> None:
        environment = {**os.environ, "PATH": f"{self._programs}:{os.environ['PATH']}", **settings}
        done = subprocess.run(
            [self._programs / program, *arguments, "--profiles-dir", "."],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def lineage(store: GraphStore) -> tuple[set[str], set[str]]:
    """DERIVES_FROM between columns, and the pairs of tables that a SQL node joins."""
    items = list(store.stream())
    nodes = [item for item in items if isinstance(item, Node)]
    names = {node.id: str(node.props.get("qualifiedName", "")).removeprefix("shop.main.") for node in nodes}
    edges = [item for item in items if isinstance(item, Edge)]
    derived = {f"{names[edge.from_id]}>{names[edge.to_id]}" for edge in edges if edge.type == "DERIVES_FROM"}
    inputs: dict[str, set[str]] = defaultdict(set)
    for edge in edges:
        if edge.type == "INPUT_OF":
            inputs[edge.to_id].add(names[edge.from_id])
    outputs = [edge for edge in edges if edge.type == "OUTPUT_TO"]
    return derived, {f"{source}>{names[edge.to_id]}" for edge in outputs for source in inputs[edge.from_id]}
