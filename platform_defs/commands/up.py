"""`platform up`: prepares the home and runs everything in it until Ctrl-C."""

import asyncio
import signal
import sys
import time
from collections.abc import Mapping
from functools import partial

import click

from platform_defs.settings import Settings


@click.command("up")
@click.option("--api-port", type=click.IntRange(1, 65535), help="Port of the API; default PLATFORM_API_PORT, 8000.")
@click.option("--ui-port", type=click.IntRange(1, 65535), help="Port of the UI; default PLATFORM_UI_PORT, 3000.")
@click.option(
    "--demo/--no-demo",
    default=None,
    help="A small shop to look at, a key with all scopes, and a source to harvest from, on this machine."
    " Default: with an embedded store that this start creates, from then on until `platform demo remove`.",
)
def command(api_port: int | None, ui_port: int | None, demo: bool | None) -> None:
    """Start code server, Dagster UI, daemon, runner and API, and keep them running.

    Migrates the database first. When everything is ready it prints the addresses and writes
    up.json into PLATFORM_HOME. Ctrl-C or SIGTERM stops all of it.
    """
    began = time.monotonic()
    # From here on SIGTERM raises an exception as Ctrl-C does, so that the lock file is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # imported here: `platform up --help` needs none of them
    from platform_defs.api.http.server import refuse_open_auth
    from platform_defs.supervisor.home import UpFile, lock_home
    from platform_defs.supervisor.ports import find_free_port, require_free_port
    from platform_defs.supervisor.processes import (
        LOOPBACK,
        child_environment,
        child_specs,
        demo_writer,
        local_url,
    )

    settings = Settings.load()
    chosen = {"api_port": api_port, "ui_port": ui_port}
    settings = settings.model_copy(update={name: port for name, port in chosen.items() if port is not None})
    refuse_open_auth(settings.auth, settings.api_host)
    if settings.api_port == settings.ui_port:
        raise click.UsageError(f"port {settings.api_port} cannot serve both the API and the UI")

    with lock_home(settings.home) as lock:
        up_path = settings.home / "up.json"
        up_path.unlink(missing_ok=True)  # left by a `platform up` that was killed
        require_free_port(settings.api_host, settings.api_port, "API", "--api-port")
        require_free_port(settings.ui_host, settings.ui_port, "UI", "--ui-port")

        from platform_defs import dagster_instance
        from platform_defs.connections import open_database
        from platform_defs.demo.guide import platform_command
        from platform_defs.demo.start import demo_of_start, offer_guide
        from platform_defs.demo_source.registry import rest_demo_sources
        from platform_defs.store.migrate import known_revisions
        from platform_defs.supervisor.demo import (
            ensure_demo_key,
            kept_demo_key,
            prepare_demo_source,
            why_tenant_is_taken,
        )
        from platform_defs.supervisor.output import Output
        from platform_defs.supervisor.supervisor import Supervisor
        from platform_defs.upgrade import upgrade_stores

        stores = upgrade_stores(settings)
        if stores.created:
            click.echo(f"created database {settings.database_url.database}")
        # also where an earlier start was killed before it had migrated the file that it had created
        is_new = stores.applied == known_revisions()
        with open_database(settings, pool_size=1) as engine:
            shop = demo_of_start(settings, asked=demo, is_new=is_new, taken=why_tenant_is_taken(engine))
            key = ensure_demo_key(engine, settings.home) if shop.wanted else None
            source = prepare_demo_source(engine, settings.home, short_day=shop.short_day) if shop.wanted else None
            if shop.rests:
                rest_demo_sources(engine)
        dagster_instance.prepare(settings, on_created=lambda name: click.echo(f"created database {name}"))
        code_port = find_free_port(LOOPBACK)
        workspace = dagster_instance.write_workspace(settings, LOOPBACK, code_port)

        api = local_url(settings.api_host, settings.api_port)
        ui = local_url(settings.ui_host, settings.ui_port)
        up_file = UpFile(
            up_path, lambda: {"api": api, "ui": ui, "demo_key": kept_demo_key(settings.home) if shop.wanted else None}
        )
        variables = child_environment(settings, human_logs=sys.stdout.isatty()) | shop.variables
        children = child_specs(settings, code_port, workspace, variables, demo_source=source)
        writer = demo_writer(variables) if shop.wanted and not shop.is_written else None
        output = Output([child.name for child in children] + ([] if writer is None else [writer.name]))
        table_shown = False

        def on_change(pids: Mapping[str, int]) -> None:
            nonlocal table_shown
            up_file.write(pids)
            if not table_shown:
                table_shown = True
                shown = {"API": f"{api}/docs", "Dagster UI": ui, "Demo key": key, "Home": str(settings.home)}
                if shop.is_written:
                    command = platform_command(settings)
                    shown["Demo"] = f"`{command} demo show` says what to try, `{command} demo remove` takes it away"
                if writer is not None:
                    shown["Demo"] = "a small shop is being written; what to try follows in some seconds"
                    output.writing_demo(True)
                if shop.note is not None:
                    shown["Demo"] = shop.note
                rows = [(name, value) for name, value in shown.items() if value is not None]
                output.ready(f"Ready in {time.monotonic() - began:.1f} s. Ctrl-C stops everything.", rows)

        try:
            on_end = partial(offer_guide, settings, output)
            supervisor = Supervisor(
                children, output, on_change=on_change, descriptors=[lock], afterwards=writer, on_end=on_end
            )
            asyncio.run(supervisor.run())
        finally:
            up_file.remove()
