"""Records the events that a real dbt-ol sends for the project of dbt_project.py, a file for each of its commands.

Run it as `python -m tests.lineage.dbt.record BIN`, where BIN is the folder that has dbt-ol: after `make services` it is
.services/dbt/venv/bin. The folder of the project becomes `/shop`.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.lineage.dbt_project import COMMANDS, DbtProject

HERE = Path(__file__).resolve().parent


def compact(line: str) -> str:
    """Without what names the producer and the schema of each facet, which is half of the text."""

    def without(facets: Any) -> Any:
        if isinstance(facets, dict):
            return {key: without(value) for key, value in facets.items() if key not in ("_producer", "_schemaURL")}
        return [without(one) for one in facets] if isinstance(facets, list) else facets

    return json.dumps(without(json.loads(line)), separators=(",", ":"))


def record(programs: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = DbtProject(Path(folder), programs)
        for name in COMMANDS:
            events = Path(folder, f"{name}.log")
            project.run(name, {"type": "file", "log_file_path": str(events), "append": True})
            lines = [compact(line.replace(folder, "/shop")) for line in events.read_text().splitlines() if line.strip()]
            HERE.joinpath(f"{name}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]).resolve())
