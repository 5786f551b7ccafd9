"""The processes of the platform: the command and environment of each, and the probe that says when it is ready."""

import os
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from platform_defs import dagster_instance
from platform_defs.demo_source.receiver import PATH
from platform_defs.settings import SUPERVISED, Settings
from platform_defs.stopping import API_LEAVES_AFTER_S
from platform_defs.supervisor import probes
from platform_defs.supervisor.child import ChildSpec
from platform_defs.work.runners import LEAVE_AFTER_S

LOOPBACK = "127.0.0.1"
# Where the demo receives webhooks. It is another address of loopback, so that allowing it opens neither API nor UI.
DEMO_WEBHOOKS = "127.0.0.2"


@dataclass(frozen=True)
class DemoSourceSpec:
    """`short_day`: of this day the source lists fewer works than it counts."""

    port: int
    short_day: date | None = None

    @property
    def webhook(self) -> str:
        return f"http://{DEMO_WEBHOOKS}:{self.port}{PATH}"


def local_url(host: str, port: int) -> str:
    """The URL under which a browser on this machine reaches a server that listens on the host and port."""
    reachable = {"0.0.0.0": LOOPBACK, "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{port}"


def child_environment(settings: Settings, *, human_logs: bool = False) -> dict[str, str]:
    """The environment of the children; with `human_logs` the API writes for a person, unless a setting decides."""
    variables = dict(os.environ)
    if human_logs and not settings.log_format:
        variables["PLATFORM_LOG_FORMAT"] = "human"
    # Without bytecode files every process would compile Dagster again.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    scripts = sysconfig.get_path("scripts")
    return variables | {
        **dagster_instance.environment(settings),
        "PATH": os.pathsep.join(filter(None, (scripts, variables.get("PATH")))),
        "PLATFORM_API_PORT": str(settings.api_port),
        "PLATFORM_UI_PORT": str(settings.ui_port),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "PYTHONUNBUFFERED": "1",
        SUPERVISED: "1",
    }


def child_specs(
    settings: Settings,
    code_port: int,
    workspace: Path,
    variables: Mapping[str, str],
    *,
    demo_source: DemoSourceSpec | None = None,
) -> list[ChildSpec]:
    """The processes that `platform up` keeps running, with the demo source of ingest if there is one."""
    ui = local_url(settings.ui_host, settings.ui_port)
    platform = str(Path(sysconfig.get_path("scripts"), "platform"))
    python, at = (sys.executable, "-m"), (LOOPBACK, str(code_port))
    after_code_server = (*python, "platform_defs.supervisor.after_code_server", *at)
    location = (
        *("-m", dagster_instance.MODULE, "-d", dagster_instance.FOLDER),
        *("--location-name", dagster_instance.LOCATION),
    )
    children = [
        ChildSpec(
            "code-server",
            (*python, "dagster", "code-server", "start", "--host", LOOPBACK, "--port", str(code_port), *location),
            variables,
            probes.code_server_probe(LOOPBACK, code_port),
            loses_nothing=True,
        ),
        ChildSpec(
            "webserver",
            (
                *(*after_code_server, "dagster_webserver", "-w", str(workspace)),
                *("-h", settings.ui_host, "-p", str(settings.ui_port)),
            ),
            variables,
            probes.webserver_probe(ui, dagster_instance.LOCATION),
            # It would wait for every browser that has the UI open.
            grace_s=3.0,
            loses_nothing=True,
        ),
        ChildSpec(
            "daemon",
            (*after_code_server, "dagster._daemon", "run", "-w", str(workspace)),
            variables,
            probes.daemon_probe(ui),
            loses_nothing=True,
        ),
        ChildSpec(
            "api",
            (platform, "serve"),
            variables,
            probes.http_probe(local_url(settings.api_host, settings.api_port) + "/readyz"),
            grace_s=API_LEAVES_AFTER_S + 1.0,
        ),
    ]
    if dagster_instance.uses_warm_launcher(settings):
        children.append(
            ChildSpec(
                "runner",
                (platform, "runner"),
                variables,
                probes.runner_probe(settings),
                # The runner stops its runs first, and leaves after LEAVE_AFTER_S at the latest. On a busy machine the
                # end of a Python process with Dagster loaded takes a second more.
                grace_s=LEAVE_AFTER_S + 2.0,
                keep_descendants_on_crash=True,
            )
        )
    if demo_source is not None:
        command = (
            *(*python, "platform_defs.demo_source", "--port", str(demo_source.port), "--rate", "20", "--burst", "20"),
            *("--webhooks-on", DEMO_WEBHOOKS),
            *(() if demo_source.short_day is None else ("--short-day", demo_source.short_day.isoformat())),
        )
        ready = probes.http_probe(f"http://{LOOPBACK}:{demo_source.port}/_requests")
        children.append(ChildSpec("demo-source", command, variables, ready, grace_s=1.0, loses_nothing=True))
    return children


def demo_writer(variables: Mapping[str, str]) -> ChildSpec:
    """The process that writes the demo, once, when everything is ready."""
    platform = str(Path(sysconfig.get_path("scripts"), "platform"))
    return ChildSpec("demo", (platform, "demo", "load", "--quiet"), variables, grace_s=1.0, loses_nothing=True)
