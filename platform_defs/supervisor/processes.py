"""The platform's processes: what each is started with and when it counts as ready."""

import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from platform_defs import dagster_instance
from platform_defs.settings import Settings
from platform_defs.supervisor import probes
from platform_defs.supervisor.child import ChildSpec
from platform_defs.work.runners import STOP_GRACE_S

LOOPBACK = "127.0.0.1"


def url(host: str, port: int) -> str:
    """Where a browser on this machine finds what listens there."""
    reachable = {"0.0.0.0": LOOPBACK, "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{port}"


def environment(settings: Settings) -> dict[str, str]:
    variables = dict(os.environ)
    # without bytecode every process compiles Dagster again
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    scripts = sysconfig.get_path("scripts")
    return variables | {
        **dagster_instance.environment(settings),
        "PATH": os.pathsep.join(filter(None, (scripts, variables.get("PATH")))),
        "PLATFORM_API_PORT": str(settings.api_port),
        "PLATFORM_UI_PORT": str(settings.ui_port),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "PYTHONUNBUFFERED": "1",
    }


def specs(settings: Settings, code_port: int, workspace: Path, variables: Mapping[str, str]) -> list[ChildSpec]:
    """Everything that `platform up` keeps running; one more process is one more entry."""
    ui = url(settings.ui_host, settings.ui_port)
    platform = str(Path(sysconfig.get_path("scripts"), "platform"))
    python, at = (sys.executable, "-m"), (LOOPBACK, str(code_port))
    after_code_server = (*python, "platform_defs.supervisor.after_code_server", *at)
    location = ("-m", dagster_instance.MODULE, "--location-name", dagster_instance.LOCATION)
    children = [
        ChildSpec(
            "code-server",
            (*python, "dagster", "code-server", "start", "--host", LOOPBACK, "--port", str(code_port), *location),
            variables,
            probes.grpc_ping(LOOPBACK, code_port),
        ),
        ChildSpec(
            "webserver",
            (
                *(*after_code_server, "dagster_webserver", "-w", str(workspace)),
                *("-h", settings.ui_host, "-p", str(settings.ui_port)),
            ),
            variables,
            probes.location_loaded(ui, dagster_instance.LOCATION),
            # it holds nothing that could be lost, but waits for every browser that has the UI open
            grace_s=3.0,
        ),
        ChildSpec(
            "daemon",
            (*after_code_server, "dagster._daemon", "run", "-w", str(workspace)),
            variables,
            probes.daemon_healthy(ui),
        ),
        ChildSpec(
            "api",
            (platform, "serve"),
            variables,
            probes.http_ok(url(settings.api_host, settings.api_port) + "/readyz"),
        ),
    ]
    if dagster_instance.uses_warm_launcher(settings):
        children.append(
            ChildSpec(
                "runner",
                (platform, "runner"),
                variables,
                probes.runner_loaded(settings),
                # its runs get their grace first
                grace_s=STOP_GRACE_S + 3.0,
                leaves_rest=True,
            )
        )
    return children
