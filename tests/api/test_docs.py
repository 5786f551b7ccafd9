"""The documentation of the API: a curl for every path that works as it stands, and a page on which to try it."""

import os
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from platform_defs.access.keys import issue_key
from platform_defs.access.principal import ALL_SCOPES, SourceType
from platform_defs.access.tenants import DEMO_TENANT, add_tenant
from platform_defs.api.http.curl import BASE
from platform_defs.arrivals.models import catalog
from platform_defs.arrivals.models.file import read_file
from platform_defs.arrivals.models.life import disable_orphaned_subscriptions
from platform_defs.demo.story import models_file
from platform_defs.demo_source.registry import load_demo_sources
from tests.api.serving import Api, serve_api
from tests.conftest import SharedDatabases, _empty
from tests.e2e.chromium import opened_page

# refused at the door, no such path, no such method, no such type of body, a failure of ours
NEVER = {"401", "403", "405", "415", "500", "501", "502", "000"}
# an id that only an answer can tell, in a path; and the first task, which comes with the first run of the demo
TO_FILL_IN = re.compile(r"/[A-Z]+_ID|/tasks/1'")


@pytest.fixture
def served(migrated: SharedDatabases) -> Iterator[tuple[Api, str]]:
    engine = migrated.empty("sqlite")
    add_tenant(engine, DEMO_TENANT)
    key = issue_key(engine, "docs", ALL_SCOPES, source_type=SourceType.COMPUTE, tenant_id=DEMO_TENANT.id)
    now = datetime.now(UTC)
    load_demo_sources(engine, "http://127.0.0.1:1", now=now)
    catalog.save(
        engine,
        read_file(models_file("20261117", now, ZoneInfo("UTC")).encode(), "demo"),
        disable_orphaned_subscriptions,
    )
    with serve_api(engine) as api:
        yield api, key
    _empty(engine)


def test_every_path_has_a_curl_that_works_as_it_stands(served: tuple[Api, str]) -> None:
    api, key = served
    commands = [
        operation["x-codeSamples"][0]["source"]
        for operations in api.client.get("/openapi.json").json()["paths"].values()
        for operation in operations.values()
    ]
    script = "\n".join(
        command.replace(BASE, api.url).replace("curl ", "curl --noproxy '*' -s -o /dev/null -w '%{http_code}\\n' ", 1)
        for command in commands
        if "srcTableComplete" not in command  # it would wait for a runner
    )
    done = subprocess.run(["bash", "-c", script], env=os.environ | {"KEY": key}, capture_output=True, text=True)
    answers = dict(zip([c for c in commands if "srcTableComplete" not in c], done.stdout.split(), strict=True))
    assert len(answers) > 25
    assert {command: status for command, status in answers.items() if status in NEVER} == {}
    as_they_stand = {command: status for command, status in answers.items() if not TO_FILL_IN.search(command)}
    assert len(as_they_stand) > 10
    assert {command: status for command, status in as_they_stand.items() if not status.startswith("2")} == {}
    (arrival,) = (command for command in commands if "srcTableComplete" in command)
    assert '"srcTableName": "DW_FACT_ORDER_D"' in arrival


def test_the_root_leads_to_the_documentation(served: tuple[Api, str]) -> None:
    answer = served[0].client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/docs")


@pytest.mark.needs("chromium")
def test_the_page_shows_the_curl_and_sends_what_it_says(served: tuple[Api, str]) -> None:
    api, key = served
    with opened_page() as page:
        page.goto(f"{api.url}/")
        page.fill("#key", key)
        box = page.locator("details", has_text="/api/openlineage").first
        box.locator("summary").click()
        assert box.locator(".curl").inner_text().startswith(f"curl -X POST '{api.url}/api/openlineage'")
        box.get_by_role("button", name="Try it").click()
        box.locator(".answer", has_text="201").wait_for()
        assert "accepted" in box.locator(".answer").inner_text()
        # an id in an answer is filled in wherever one is awaited, but not over what somebody typed
        typed, started = (
            page.locator("details", has_text=f"/api/v1/chains/{{chain_id}}{end}") for end in (":enable", ":start")
        )
        typed.locator("summary").click()
        typed.locator("input").fill("/api/v1/chains/mine:enable")
        created = page.locator("details", has_text="Create a chain").first
        created.locator("summary").click()
        created.get_by_role("button", name="Try it").click()
        created.locator(".answer", has_text="200").wait_for()
        (chain_id,) = re.findall(r'"chainId":"([0-9a-f-]{36})"', created.locator(".answer").inner_text())
        started.locator("summary").click()
        assert f"/api/v1/chains/{chain_id}:start'" in started.locator(".curl").inner_text()
        assert started.locator("input").input_value() == f"/api/v1/chains/{chain_id}:start"
        assert typed.locator("input").input_value() == "/api/v1/chains/mine:enable"
