"""A gate's connections for tests that are not about a silent database: on a busy machine that is merely slow."""

from sqlalchemy import Engine
from sqlalchemy.engine import URL

from platform_defs.store.engine import Patience, open_engine
from tests.waiting import PATIENCE_S

PATIENCE = Patience(connect=int(PATIENCE_S), pool=PATIENCE_S, sqlite_busy=PATIENCE_S)


def open_patient_gate_engine(url: URL | str) -> Engine:
    """As `open_gate_engine`, except that no database is given up because it takes a few seconds."""
    return open_engine(
        url,
        pool_size=4,
        socket_timeout=int(PATIENCE_S),
        patience=PATIENCE,
        autocommit=True,
        survives_power_loss=False,
    )
