"""The documentation, followed word by word on a fresh platform: every command works and prints what the page says."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.conftest import UNHURRIED
from tests.e2e.platform_up import PATIENTLY, PlatformUp
from tests.needs import ROOT
from tests.pages import Block, difference, read_blocks
from tests.waiting import PATIENCE_S, until

# in the order in which a newcomer reads them; what one page makes, the next may use
PAGES = (
    *("README.md", "docs/ingest.md", "docs/lineage.md", "docs/arrivals.md", "docs/chains.md"),
    *(
        "docs/runner.md",
        "docs/operations.md",
        "docs/expressions.md",
        "docs/architecture.md",
        "docs/demo.md",
        "CHANGELOG.md",
    ),
)


@dataclass(frozen=True)
class Reader:
    """Somebody at a terminal, in a folder that looks like the project's."""

    platform: PlatformUp
    folder: Path
    programs: Path

    def follow(self, page: str) -> None:
        blocks = read_blocks(ROOT / page, page)
        for block in blocks:
            if block.verb == "save as":
                (self.folder / block.what).write_text(block.text, encoding="utf-8")
        commands = [block for block in blocks if block.is_executed]
        printed = self.folder / "printed" / page.replace("/", "-")
        printed.mkdir(parents=True)
        script = "\n".join(["set -euo pipefail", *(self._part(block, printed) for block in commands)])
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            timeout=4 * PATIENCE_S,
            check=False,
        )
        began = [block for block in commands if (printed / f"{block.line}.out").exists()]
        if done.returncode:
            last = began[-1]
            told = (printed / f"{last.line}.out").read_text() + (printed / f"{last.line}.err").read_text()
            pytest.fail(f"{last.place} ends with {done.returncode}:\n{last.text}\n{told}")
        wrong = [text for block in blocks if (text := self._difference(block, commands, printed))]
        assert not wrong, "\n\n".join(wrong)

    def _part(self, block: Block, printed: Path) -> str:
        text = block.text.replace("http://127.0.0.1:8000", self.platform.up["api"])
        text = text.replace("http://127.0.0.1:3000", self.platform.up["ui"])
        # on a busy machine a model may run longer than the minute for which a person waits
        text = text.replace("/srcTableComplete", f"/srcTableComplete?wait={PATIENCE_S:.0f}")
        target = shlex.quote(str(printed / str(block.line)))
        return f"exec >{target}.out 2>{target}.err\n{text}"

    def _difference(self, block: Block, commands: list[Block], printed: Path) -> str | None:
        if block.verb != "prints":
            return None
        before = max((one for one in commands if one.line < block.line), key=lambda one: one.line)
        out = (printed / f"{before.line}.out").read_text(encoding="utf-8")
        found = difference(block, self._as_documented(out))
        return found and f"{found}\n{(printed / f'{before.line}.err').read_text(encoding='utf-8')}"

    def _as_documented(self, text: str) -> str:
        up = self.platform.up
        return text.replace(up["api"], "http://127.0.0.1:8000").replace(up["ui"], "http://127.0.0.1:3000")

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(self.programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**self.platform.environment, "PATH": path, "LC_ALL": "C.UTF-8", "no_proxy": "127.0.0.1"}


# What is answered with an error ends a page's commands, which curl alone would hide, and a run may take its time.
WRAPPERS = {
    "curl": 'exec {curl} --fail-with-body "$@"',
    "platform": 'if [ "$1" = selfcheck ]; then set -- "$@" {patiently}; fi\nexec {platform} "$@"',
}


def strict_programs(folder: Path) -> Path:
    """Programs that go before those of the machine, and call them."""
    found = {"curl": shutil.which("curl"), "platform": Path(sys.executable).with_name("platform")}
    for name, text in WRAPPERS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text.format(patiently=shlex.join(PATIENTLY), **found)}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "docs" / "examples", folder / "docs" / "examples")
    up = PlatformUp(folder / "home", UNHURRIED, folder, demo=True)
    try:
        up.until_ready()
        # a newcomer begins to read when the last line of the start is there
        until("the demo", lambda: any(line.strip().startswith("5 end") for line in up.lines))
        yield Reader(up, folder, strict_programs(tmp_path_factory.mktemp("programs")))
    finally:
        up.end()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_followed_literally(reader: Reader, page: str) -> None:
    reader.follow(page)


def test_a_request_of_a_page_that_is_refused_is_noticed(reader: Reader) -> None:
    done = subprocess.run(
        ["sh", "-c", f"curl -s {reader.platform.up['api']}/api/v1/chains"],
        env=reader.environment(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 22, "HTTP 401"
    assert b"error" in done.stdout, "its reader sees why"


def test_no_page_is_left_out() -> None:
    assert {str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))} == set(PAGES)
