"""What other clients of the lineage endpoint see while one event holds the only writer of a file of SQLite."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from platform_defs.access.tenants import Tenant
from platform_defs.graph.embedded import EmbeddedGraph
from platform_defs.lineage.sink import store_health
from platform_defs.lineage.sink.store_health import StoreHealth
from tests.api.lineage_client import BACKENDS, Backend
from tests.lineage_events import run_event
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("backend", BACKENDS[:1], indirect=True)
def test_while_the_event_of_one_tenant_is_written_the_database_is_not_away_for_the_others(
    backend: Backend, failing: Callable[[Callable[..., Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ping of the file waits for the writer, so nobody answers it in time."""
    looked, release = threading.Event(), threading.Event()
    find_silent = StoreHealth._find_silent

    async def look(health: StoreHealth) -> frozenset[str]:
        found = await find_silent(health)
        looked.set()
        return found

    def fault(merge: Any, store: Any, tenant: Tenant, *others: Any) -> Any:
        if tenant == backend.tenant:
            assert release.wait(PATIENCE_S)
        return merge(store, tenant, *others)

    failing(fault)
    monkeypatch.setattr(StoreHealth, "_find_silent", look)
    monkeypatch.setattr(EmbeddedGraph, "ping", lambda _: None)
    monkeypatch.setattr(store_health, "SLOW_SHARE", 0.001)
    monkeypatch.setattr(store_health, "PING_SHARE", 0.05)
    with backend.api() as client, ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(client.post, run_event())]
        try:
            assert looked.wait(PATIENCE_S)
            assert "platform_lineage_breaker_open 0.0" in client.metrics()
            waiting.append(pool.submit(client.post, run_event(), tenant=backend.other))
        finally:
            release.set()
        assert [future.result().status_code for future in waiting] == [201, 201]
