"""DAGs of workflow systems in use, from the data set, as nodes of chains."""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.needs import require


def all_names() -> list[str]:
    """The names of all DAGs, the smallest first."""
    files = Path(require("data"), "dags").glob("*.json")
    return [file.stem for file in sorted(files, key=lambda file: (file.stat().st_size, file.name))]


def nodes_of(name: str) -> list[dict[str, Any]]:
    content = json.loads(Path(require("data"), "dags", f"{name}.json").read_text())
    return [
        {"id": node["id"], "type": "print", "cfg": {"message": node["id"]}, "dependsOn": node["deps"]}
        for node in content["nodes"]
    ]


def assert_order(dag: list[dict[str, Any]], times: Mapping[str, tuple[Any, Any]]) -> None:
    """Every node began after the end of all that it depends on; times are begin and end of each node."""
    for node in dag:
        for above in node["dependsOn"]:
            ended, begun = _instant(times[above][1]), _instant(times[node["id"]][0])
            assert ended <= begun, f"{node['id']} began at {begun}, before {above} ended at {ended}"


def _instant(value: str | datetime) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)
