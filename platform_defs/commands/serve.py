"""`platform serve`: the API process."""

import gc
import sys

import click

from platform_defs import logs
from platform_defs.settings import Settings

# How long a busy thread may keep the others from running. Python's own 5 ms are too long: a group of events waits for
# its stores some twenty times, and beside a thread that merges wide events each return would take 5 ms more.
SWITCH_INTERVAL_S = 0.0005


@click.command("serve")
@click.option("--host", help="Address to bind to; default PLATFORM_API_HOST, 127.0.0.1.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; default PLATFORM_API_PORT, 8000. 0 takes a free one."
)
def command(host: str | None, port: int | None) -> None:
    """Run the API process until SIGTERM or Ctrl-C.

    It logs to stderr, JSON lines unless that is a terminal. On SIGTERM it stops accepting connections, finishes running
    requests within 5 seconds, answers the others with 503 and exits 0.
    """
    # imported here: `platform serve --help` needs no web framework
    from platform_defs.access.tenants import DEMO_TENANT, add_tenant
    from platform_defs.api.app import close_services, create_app
    from platform_defs.api.http.drain import Drain
    from platform_defs.api.http.server import DrainingServer, bind, refuse_open_auth
    from platform_defs.connections import open_stores

    settings = Settings.load()
    logs.configure_logging(settings.log_level, form=settings.log_format)
    host = host or settings.api_host
    refuse_open_auth(settings.auth, host)
    # The socket comes first: a port that is taken is refused without waiting for a database.
    with (
        bind(host, settings.api_port if port is None else port) as listener,
        open_stores(settings) as stores,
    ):
        if settings.auth == "open":
            add_tenant(stores.engine, DEMO_TENANT)
        drain = Drain()
        app = create_app(settings, stores.engine, stores.graph, drain)
        # what the start has made lives as long as the process: the garbage collector need not look at it again
        gc.collect()
        gc.freeze()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            DrainingServer(app, drain).run(sockets=[listener])
        finally:
            close_services(app)
