"""Asks whose API and UI answer at the addresses of the settings: another platform may have the same ports."""

import json
import urllib.request

import yaml

from platform_defs import dagster_instance
from platform_defs.selfcheck import DATABASE_HEADER, SERVES_DATABASE, database_digest
from platform_defs.settings import Settings
from platform_defs.supervisor import probes
from platform_defs.supervisor.child import Broken

_INFO = "{ instance { info } }"
# The part of an instance's configuration that names the home.
_OF_HOME = "local_artifact_storage"


def own_api_probe(settings: Settings, api: str, *, timeout_s: float) -> probes.Probe:
    """Ready when the API there serves the database of the settings, broken when something else answers."""

    def probe(started_at: float) -> None:
        asked = urllib.request.Request(
            f"{api}/healthz", headers={DATABASE_HEADER: database_digest(settings.database_url)}
        )
        try:
            is_own = json.loads(probes.request(asked, timeout_s))[SERVES_DATABASE] is True
        except (ValueError, TypeError, LookupError):
            is_own = False
        if not is_own:
            raise Broken(f"what answers at {api} is not the API of this database")

    return probe


def own_ui_probe(settings: Settings, ui: str, *, timeout_s: float) -> probes.Probe:
    """Ready when the UI there shows the Dagster instance of the home, broken when something else answers."""

    def probe(started_at: float) -> None:
        try:
            info = yaml.safe_load(probes.graphql(ui, _INFO, timeout_s)["instance"]["info"])
            is_own = info[_OF_HOME] == dagster_instance.instance_config(settings)[_OF_HOME]
        except (ValueError, TypeError, LookupError, AttributeError, yaml.YAMLError):
            is_own = False
        if not is_own:
            raise Broken(f"what answers at {ui} is not the Dagster UI of {settings.home}")

    return probe
