"""The documentation of the API: a curl for every path that works as it stands, and a page on which to try it."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from platform_defs.access.keys import issue_key
from platform_defs.access.principal import ALL_SCOPES, SourceType
from platform_defs.access.tenants import DEMO_TENANT, add_tenant
from platform_defs.api.http.curl import BASE
from tests.api.serving import Api, serve_api
from tests.conftest import SharedDatabases, _empty
from tests.e2e.chromium import opened_page

# refused at the door, no such path, no such method, no such type of body, a failure of ours
NEVER = {"401", "403", "405", "415", "500", "501", "502", "000"}


@pytest.fixture
def served(migrated: SharedDatabases) -> Iterator[tuple[Api, str]]:
    engine = migrated.empty("sqlite")
    add_tenant(engine, DEMO_TENANT)
    key = issue_key(engine, "docs", ALL_SCOPES, source_type=SourceType.COMPUTE, tenant_id=DEMO_TENANT.id)
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
    (lineage,) = (status for command, status in answers.items() if "/api/openlineage" in command)
    assert lineage == "201"
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
