"""The engines of Dagster's storage: one per URL, which forked processes inherit without its connections.

A forked process keeps the engine, because it holds the statements that were compiled before the fork: compiling them
again takes as long as executing them.
"""

import os

from sqlalchemy import Engine

_ENGINES: list[Engine] = []


def inherit(engine: Engine) -> Engine:
    """Lets forked processes use the engine. Each begins with an empty pool, without the connections of its parent."""
    _ENGINES.append(engine)
    return engine


def close_connections() -> None:
    """To be called before a fork, so that the parent holds no connection either."""
    for engine in _ENGINES:
        engine.dispose()


def _forget_connections() -> None:
    for engine in _ENGINES:
        engine.dispose(close=False)


os.register_at_fork(after_in_child=_forget_connections)
