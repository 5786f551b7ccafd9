"""Probes that ask a child whether it is ready. They import little, because every import delays the start."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from platform_defs.connections import open_database
from platform_defs.errors import PlatformError, one_line
from platform_defs.settings import Settings
from platform_defs.supervisor.child import Broken, NoAnswer, NotReady
from platform_defs.work import runners

Probe = Callable[[float], None]

TIMEOUT_S = 3.0
UNREACHABLE = "DagsterUserCodeUnreachableError"
# Requests to the platform's own addresses must not go through a proxy that the environment names.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

_LOCATIONS = """{ workspaceOrError { __typename
  ... on PythonError { message }
  ... on Workspace { locationEntries { name loadStatus locationOrLoadError {
    __typename ... on PythonError { message className cause { message } } } } } } }"""
_DAEMONS = """{ instance { daemonHealth { allDaemonStatuses {
  daemonType required healthy lastHeartbeatTime lastHeartbeatErrors { message } } } } }"""


def http_probe(url: str, *, timeout_s: float = TIMEOUT_S) -> Probe:
    """Ready when the URL answers with success."""

    def probe(started_at: float) -> None:
        request(urllib.request.Request(url), timeout_s)

    return probe


def code_server_probe(host: str, port: int) -> Probe:
    """Ready when Dagster's code server answers a ping. Sent without Dagster, whose import takes two seconds."""

    def probe(started_at: float) -> None:
        import grpc  # type: ignore[import-untyped]

        with grpc.insecure_channel(f"{host}:{port}") as channel:
            try:
                channel.unary_unary("/api.DagsterApi/Ping")(b"", timeout=TIMEOUT_S)
            except grpc.RpcError:
                raise NotReady("no answer to a ping yet") from None

    return probe


def webserver_probe(ui: str, location: str, *, timeout_s: float = TIMEOUT_S) -> Probe:
    """Ready when the UI answers and has loaded the code location."""

    def probe(started_at: float) -> None:
        workspace = graphql(ui, _LOCATIONS, timeout_s)["workspaceOrError"]
        if workspace["__typename"] != "Workspace":
            raise NotReady(workspace["message"])
        entry = next((e for e in workspace["locationEntries"] if e["name"] == location), None)
        if entry is None or entry["loadStatus"] != "LOADED" or entry["locationOrLoadError"] is None:
            raise NotReady(f"code location {location} is not loaded yet")
        loaded = entry["locationOrLoadError"]
        if loaded["__typename"] == "PythonError":
            if loaded["className"] == UNREACHABLE:
                raise NotReady("the webserver does not reach the code server yet")
            raise Broken(f"code location {location} does not load: {_load_error(loaded)}")

    return probe


def daemon_probe(ui: str, *, timeout_s: float = TIMEOUT_S) -> Probe:
    """Ready when every daemon that the instance needs has sent a heartbeat since this start.

    Dagster itself calls a daemon healthy for minutes after its last heartbeat, which may be one before the start.
    """

    def probe(started_at: float) -> None:
        statuses = graphql(ui, _DAEMONS, timeout_s)["instance"]["daemonHealth"]["allDaemonStatuses"]
        silent = [
            status["daemonType"]
            for status in statuses
            if status["required"] and not (status["healthy"] and (status["lastHeartbeatTime"] or 0) >= started_at)
        ]
        if silent:
            raise NotReady(f"no heartbeat yet from {', '.join(silent)}")

    return probe


def runner_probe(settings: Settings) -> Probe:
    """Ready when a runner that started since has loaded the definitions; broken when it says that it cannot."""

    def probe(started_at: float) -> None:
        try:
            with open_database(settings, pool_size=1, any_schema=True) as engine:
                alive = [r for r in runners.living_runners(engine) if r.started_at.timestamp() >= started_at]
        except (PlatformError, SQLAlchemyError) as error:
            raise NotReady(one_line(error)) from None
        if any(runner.definitions for runner in alive):
            return
        if errors := [runner.load_error for runner in alive if runner.load_error]:
            raise Broken(f"the runner cannot load the definitions: {errors[0]}")
        raise NotReady("no runner has loaded the definitions yet")

    return probe


def _load_error(error: dict[str, Any]) -> str:
    """The reason in one line: the message of a syntax error has several, for file, source and reason."""
    cause = error.get("cause") or {}
    lines = [line.strip() for line in (cause.get("message") or error["message"]).splitlines()]
    return " ".join(line for line in lines if line.strip("^~ "))[:500] or str(error.get("className"))


def graphql(ui: str, query: str, timeout_s: float) -> Any:
    body = json.dumps({"query": query}).encode()
    answer = request(urllib.request.Request(f"{ui}/graphql", body, {"Content-Type": "application/json"}), timeout_s)
    content = json.loads(answer)
    if content.get("errors"):
        raise NotReady(content["errors"][0]["message"])
    return content["data"]


def request(asked: urllib.request.Request, timeout_s: float) -> bytes:
    try:
        with _OPENER.open(asked, timeout=timeout_s) as response:
            body: bytes = response.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            raise NotReady(f"{asked.full_url} answers {error.code}") from None
    except (OSError, ValueError, HTTPException):
        raise NoAnswer(f"{asked.full_url} does not answer yet") from None
