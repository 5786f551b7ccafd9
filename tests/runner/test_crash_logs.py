"""What a person reads of a run's process that crashed: the message, not what a library writes below it."""

from pathlib import Path

import pytest

from platform_defs.runner.crash_logs import CrashLogs

INTEGRITY = """Traceback (most recent call last):
  File "child.py", line 111, in main
sqlalchemy.exc.IntegrityError: (sqlite3.IntegrityError) UNIQUE constraint failed: dynamic_partitions.partition
[SQL: INSERT INTO dynamic_partitions (partition) VALUES (?)]
[parameters: ('20251223',)]
(Background on this error at: https://sqlalche.me/e/21/gkpj)
"""


@pytest.mark.parametrize(
    ("log", "quote"),
    [
        (INTEGRITY, "sqlalchemy.exc.IntegrityError: (sqlite3.IntegrityError) UNIQUE constraint failed: "),
        ("Traceback (most recent call last):\n\nKeyError: 'a'\n", "KeyError: 'a'"),
        ("", ""),
        ("(Background on this error at: https://sqlalche.me/e/21/gkpj)\n", ""),
    ],
)
def test_the_message_of_a_crash_is_quoted(tmp_path: Path, log: str, quote: str) -> None:
    logs = CrashLogs(tmp_path)
    logs.path_of("run").write_text(log)
    assert logs.quote("run").startswith(f"; its last words: {quote}" if quote else "")
    assert bool(logs.quote("run")) is bool(quote)


def test_a_run_that_did_not_crash_has_no_last_words(tmp_path: Path) -> None:
    assert CrashLogs(tmp_path).quote("run") == ""
