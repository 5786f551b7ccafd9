"""The pages of documentation hold together without a platform: blocks can be read, links lead somewhere."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from platform_defs.cli import cli
from tests.needs import ROOT
from tests.pages import Block, difference, read_blocks

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(#[^)]*)?\)")


def block(text: str, language: str = "text") -> Block:
    return Block("page", 1, language, text, "prints", "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_can_be_read_by_what_it_says_it_is(page: Path) -> None:
    before = None
    for found in read_blocks(page, page.name):
        if found.language == "yaml":
            yaml.safe_load(found.text)
        if found.language == "json":
            json.loads(found.text)
        if found.verb == "prints":
            assert before is not None, found.place
            assert before.is_executed, f"{found.place}: there are no commands before it"
        before = found


def commands_of(text: str) -> Iterator[list[str]]:
    """The words of every `platform …` in a block, up to what the shell does with it."""
    for line in text.replace("\\\n", " ").splitlines():
        for found in re.finditer(r"(?:^|\$\(|&& |until )platform ([^|;>#)]*)", line):
            yield found[1].split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_exists_also_in_blocks_that_are_not_run(page: Path) -> None:
    for found in read_blocks(page, page.name):
        for words in commands_of(found.text) if found.language == "sh" else ():
            command, path = cli, list[str]()
            while isinstance(command, click.Group) and words:
                path.append(words.pop(0))
                below = command.get_command(click.Context(command), path[-1])
                assert below, f"{found.place}: there is no `platform {' '.join(path)}`"
                command = below
            assert not isinstance(command, click.Group) or command.invoke_without_command, f"{found.place}: {path}"
            known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            asked = {word for word in words if re.fullmatch(r"--[a-z-]+", word)}
            assert asked <= known, f"{found.place}: {path} has no {asked - known}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {path}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor[1:] in slugs, f"{page.name}: {path}{anchor}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "docs"], ids=lambda page: page.name)
def test_pictures_are_small(page: Path) -> None:
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / path).stat().st_size < 200_000, path


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "docs"], ids=lambda page: page.name)
def test_a_page_shows_a_picture_before_its_first_heading(page: Path) -> None:
    begin = page.read_text(encoding="utf-8").partition("\n## ")[0]
    assert re.search(r"^(!\[|```mermaid$)", begin, re.MULTILINE), "its first picture comes too late, or never"


def test_make_help_lists_all_that_pages_tell_people_to_make() -> None:
    # the variables of a make that runs the tests would make this one talk of folders
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    printed = subprocess.run(["make"], cwd=ROOT, env=variables, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^(make ([a-z-]+) +)\S", printed, re.MULTILINE)
    assert len({len(left) for left, _ in found}) == 1, "one column for the names, one for what they do"
    listed = {name for _, name in found}
    texts = [block.text for page in PAGES for block in read_blocks(page, page.name) if block.language == "sh"]
    asked = {name for text in texts for name in re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)}
    assert asked >= {"up", "test", "services"}
    assert asked <= listed


def test_what_was_printed_is_compared_with_room_for_what_varies() -> None:
    said = block("id  state\n…-4  ok\n…\nend\n")
    assert difference(said, "id      state\nabc-4   ok\none\ntwo\nend\n") is None
    assert difference(said, "id state\nabc-4 ok\nend\n") is None
    assert difference(said, "id state\nabc-5 ok\nend\n") is not None
    assert difference(said, "id state\nabc-4 ok\n") is not None
    assert difference(said, "id state\nabc-4 ok\nend\nmore\n") is not None
    said = block('{"a": [1, "…"], "b": {"c": "x…", "…": "…"}}', "json")
    assert difference(said, '{"a": [1, {"any": 2}], "b": {"c": "xyz", "d": 4}}') is None
    assert difference(said, '{"a": [1, 2, 3], "b": {"c": "xyz"}}') is not None
    assert difference(said, '{"a": [1, 2], "b": {"c": "y"}}') is not None
    assert difference(said, '{"a": [1, 2], "b": {"c": "x"}, "e": 1}') is not None
