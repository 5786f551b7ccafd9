"""Records the events that a real dbt-ol sends for a small project: `python record.py BIN`, where BIN has dbt-ol.

    python -m venv v && v/bin/pip install 'dbt-core<1.11' dbt-duckdb openlineage-dbt && python record.py v/bin

Writes one file of events for each command of COMMANDS beside this one; the folder of the project becomes `/shop`.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

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


def compact(line: str) -> str:
    """Without what names the producer and the schema of each facet, which is half of the text."""

    def without(facets: Any) -> Any:
        if isinstance(facets, dict):
            return {key: without(value) for key, value in facets.items() if key not in ("_producer", "_schemaURL")}
        return [without(one) for one in facets] if isinstance(facets, list) else facets

    return json.dumps(without(json.loads(line)), separators=(",", ":"))


def record(bin: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        subprocess.run([bin / "dbt", "seed", "--profiles-dir", "."], cwd=folder, check=True)
        for name, command in COMMANDS.items():
            events = Path(folder, f"{name}.log")
            transport = {"type": "file", "log_file_path": str(events), "append": True}
            env = {
                **os.environ,
                "PATH": f"{bin}:{os.environ['PATH']}",
                "OPENLINEAGE__TRANSPORT": json.dumps(transport),
                "OPENLINEAGE_NAMESPACE": "dbt",
            }
            subprocess.run([bin / "dbt-ol", *command, "--profiles-dir", "."], cwd=folder, env=env, check=True)
            lines = [compact(line.replace(folder, "/shop")) for line in events.read_text().splitlines() if line.strip()]
            HERE.joinpath(f"{name}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]).resolve())
