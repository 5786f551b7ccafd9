"""The endpoints that definitions are built from, read from the Registry when the code location loads."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from platform_defs.errors import StoreError, one_line
from platform_defs.ingest.spec.compiler import CompiledEndpoint, compile_all
from platform_defs.settings import Settings
from resources.database import DatabaseResource

_log = logging.getLogger(__name__)


def load_endpoints() -> Sequence[CompiledEndpoint]:
    """Every active endpoint. One that does not compile is left out and logged: it must not keep others from loading."""
    url = Settings.load().database_url
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).exists():
        return ()  # nothing was ever set up here
    try:
        with DatabaseResource().open() as engine:
            endpoints = compile_all(engine, datetime.now(UTC))
    except SQLAlchemyError as error:
        raise StoreError(f"the Registry cannot be read: {one_line(error)}") from None
    for endpoint in endpoints:
        for operation, problems in endpoint.problems.items():
            names = f"{endpoint.provenance_code}/{endpoint.endpoint_name}"
            _log.error("%s does not compile for %s: %s", names, operation.lower(), "; ".join(problems))
    return endpoints
