"""SQL helpers of the rate gate: functions that MySQL and SQLite spell differently, and the clock of its statements."""

import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Engine, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FunctionElement

from platform_defs.store.types import is_mysql

Number = ColumnElement[Any]


class _Numeric(FunctionElement[Any]):
    type = BigInteger()
    inherit_cache = True


class greatest(_Numeric):
    """The largest of its arguments."""


class least(_Numeric):
    """The smallest of its arguments."""


class whole_quotient(_Numeric):
    """Division of integers that are not negative, without the remainder."""


class report_number(_Numeric):
    """Its argument. On MySQL it is LAST_INSERT_ID(x), so that an UPDATE returns the number without a second query."""


class server_now_us(_Numeric):
    """MySQL only: microseconds since 1970 by the server's clock, the same throughout a statement."""


def _call(name: str, element: _Numeric, compiler: SQLCompiler, **kw: Any) -> str:
    return f"{name}({compiler.process(element.clauses, **kw)})"


def _infix(operator: str, element: _Numeric, compiler: SQLCompiler, **kw: Any) -> str:
    left, right = element.clauses
    return f"(({compiler.process(left, **kw)}) {operator} ({compiler.process(right, **kw)}))"


@compiles(greatest)
def _greatest(element: greatest, compiler: SQLCompiler, **kw: Any) -> str:
    return _call("GREATEST" if is_mysql(compiler.dialect) else "MAX", element, compiler, **kw)


@compiles(least)
def _least(element: least, compiler: SQLCompiler, **kw: Any) -> str:
    return _call("LEAST" if is_mysql(compiler.dialect) else "MIN", element, compiler, **kw)


@compiles(whole_quotient)
def _whole_quotient(element: whole_quotient, compiler: SQLCompiler, **kw: Any) -> str:
    return _infix("DIV" if is_mysql(compiler.dialect) else "/", element, compiler, **kw)


@compiles(report_number)
def _report_number(element: report_number, compiler: SQLCompiler, **kw: Any) -> str:
    return _call("LAST_INSERT_ID" if is_mysql(compiler.dialect) else "", element, compiler, **kw)


@compiles(server_now_us)
def _server_now_us(element: server_now_us, compiler: SQLCompiler, **kw: Any) -> str:
    # independent of the session's time zone
    return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"


def number(name: str) -> Number:
    """An integer that the caller gives with each execution."""
    return bindparam(name, type_=BigInteger())


class StoreClock:
    """The current time for the gate's statements: the server's on MySQL, this machine's on SQLite."""

    def __init__(self, engine: Engine, now_us: Callable[[], int] | None = None) -> None:
        """`now_us` is a clock to use instead, on either database."""
        self._now_us = now_us or (None if is_mysql(engine.dialect) else lambda: time.time_ns() // 1000)
        self.now: Number = server_now_us() if self._now_us is None else number("now_us")

    def values(self) -> dict[str, int]:
        """Parameters of a statement that uses `now`; to be called inside the transaction.

        On SQLite beginning a transaction may wait for another writer. A time read before the wait could be older than
        the one that the other writer stored.
        """
        return {} if self._now_us is None else {"now_us": self._now_us()}
