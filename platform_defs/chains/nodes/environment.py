"""What the built-in node types work with: the database, allowed networks and secrets, data sources, sub-runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Engine

from platform_defs.chains.nodes.port import SecretNames
from platform_defs.settings import Settings
from platform_defs.webhooks.addresses import Network, Resolver, resolve_by_system


@dataclass(frozen=True)
class NodeEnvironment:
    """`networks` are private ones that URLs may reach; `source_urls` has PLATFORM_SOURCE_<NAME>_URL by <NAME>."""

    engine: Engine
    networks: Sequence[Network] = ()
    secret_names: SecretNames = field(default_factory=SecretNames)
    source_urls: Mapping[str, str] = field(default_factory=dict, repr=False)
    shell_is_allowed: bool = False
    # starts a chain in the caller's transaction: chains/runs/starting.py, which cannot be imported from here
    start_sub_run: Callable[..., str] | None = None
    # tells the runner that there is a new row of work
    wake: Callable[[], object] = lambda: None
    resolver: Resolver = resolve_by_system

    @classmethod
    def from_settings(
        cls,
        engine: Engine,
        settings: Settings,
        *,
        start_sub_run: Callable[..., str] | None = None,
        wake: Callable[[], object] = lambda: None,
    ) -> "NodeEnvironment":
        return cls(
            engine,
            networks=settings.http_networks,
            secret_names=SecretNames(settings.chain_env_patterns),
            source_urls=settings.sources,
            shell_is_allowed=settings.chain_shell,
            start_sub_run=start_sub_run,
            wake=wake,
        )
