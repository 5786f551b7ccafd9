"""The same pages through dlt's rest_api with merge; run by bench/ingest.py with the Python of a venv that has dlt.

    python bench/dlt_rest_api.py SOURCE_URL DATABASE_URL DAY [DAY ...]

Prints records, seconds and CPU seconds as JSON. Nested values stay JSON in their column, as ingest keeps them: tables
of their own for authors and licenses would cost dlt several times as much.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    url, database, *days = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"DLT_DATA_DIR": folder, "RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "ERROR"}
        import dlt
        from dlt.sources.rest_api import rest_api_source

        source = rest_api_source(
            {
                "client": {"base_url": url},
                "resource_defaults": {"primary_key": "DOI", "write_disposition": "merge", "max_table_nesting": 0},
                "resources": [
                    {
                        "name": f"works_{number}",
                        "table_name": "works",
                        "endpoint": {
                            "path": "works",
                            "params": {
                                "filter": f"from-index-date:{day},until-index-date:{day}",
                                "rows": 100,
                                "cursor": "*",
                            },
                            "data_selector": "message.items",
                            "paginator": {
                                "type": "cursor",
                                "cursor_path": "message.next-cursor",
                                "cursor_param": "cursor",
                                # the source names a cursor also behind its last page
                                "stop_after_empty_page": True,
                            },
                        },
                    }
                    for number, day in enumerate(days)
                ],
            }
        )
        pipeline = dlt.pipeline(
            "bench",
            pipelines_dir=folder,
            destination=dlt.destinations.sqlalchemy(database),
            dataset_name="dlt_bench",
        )
        before = _peak_mb()
        began, cpu = time.perf_counter(), time.process_time()
        pipeline.run(source)
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
        counts = pipeline.last_trace.last_normalize_info.row_counts
    print(
        json.dumps(
            {"records": counts["works"], "seconds": seconds, "cpu_seconds": used, "grown_mb": _peak_mb() - before}
        )
    )


def _peak_mb() -> float:
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
