"""Column types that mean the same on MySQL, MariaDB and SQLite: bytes-compared text, UTC instants, JSON."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, Integer, LargeBinary, types
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FunctionElement

from platform_defs.store.exact_numbers import DECIMALS, decimal_text, exact_number

# MySQL's utf8mb4_bin pads with spaces ("a" = "a "); these two do not.
MYSQL_COLLATION = "utf8mb4_0900_bin"
MARIADB_COLLATION = "utf8mb4_nopad_bin"


def collation(dialect: Dialect) -> str:
    return MARIADB_COLLATION if getattr(dialect, "is_mariadb", False) else MYSQL_COLLATION


def is_mysql(dialect: Dialect) -> bool:
    """MySQL or MariaDB."""
    return dialect.name in ("mysql", "mariadb")


class Str(types.TypeDecorator[str]):
    """VARCHAR(n), compared byte by byte: case, accents and trailing spaces all count."""

    impl = types.String
    cache_ok = True

    _mysql: type[mysql.VARCHAR | mysql.CHAR] = mysql.VARCHAR

    def __init__(self, length: int) -> None:
        self.length = length
        super().__init__(length)

    def load_dialect_impl(self, dialect: Dialect) -> types.TypeEngine[Any]:
        if is_mysql(dialect):
            return dialect.type_descriptor(self._mysql(self.length, charset="utf8mb4", collation=collation(dialect)))
        return super().load_dialect_impl(dialect)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.length})"


class Fixed(Str):
    """CHAR(n) for hashes and UUIDs, compared byte by byte."""

    impl = types.CHAR
    cache_ok = True

    _mysql = mysql.CHAR


class LongText(types.TypeDecorator[str]):
    """Text without a length that matters (4 GiB on MySQL), compared byte by byte."""

    impl = types.Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> types.TypeEngine[Any]:
        if is_mysql(dialect):
            return dialect.type_descriptor(mysql.LONGTEXT(charset="utf8mb4", collation=collation(dialect)))
        return dialect.type_descriptor(types.Text())

    def __repr__(self) -> str:
        return "LongText()"


class Instant(types.TypeDecorator[datetime]):
    """A point in time: aware UTC in Python, DATETIME(6) in the database, microseconds on every store."""

    impl = types.DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> types.TypeEngine[Any]:
        if is_mysql(dialect):
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(sqlite.DATETIME())  # type: ignore[no-untyped-call]

    def bind_processor(self, dialect: Dialect) -> Any:
        # one function from value to value: SQLAlchemy's way through three takes five times as long
        return _naive_utc if is_mysql(dialect) else _utc_text

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return _naive_utc(value)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC)

    def __repr__(self) -> str:
        return "Instant()"


def _in_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError(f"a naive datetime has no place in the store: {value!r}")
    return value.astimezone(UTC)


def _naive_utc(value: datetime | None) -> datetime | None:
    return None if value is None else _in_utc(value).replace(tzinfo=None)


def _utc_text(value: datetime | None) -> str | None:
    """The text that SQLAlchemy's own type for SQLite writes and reads."""
    if value is None:
        return None
    # without the offset, which is always the same
    return (value if value.tzinfo is UTC else _in_utc(value)).isoformat(" ", "microseconds")[:26]


class OthersInstant(Instant):
    """An instant that other programs write too: an unreadable time is None, so that it never fails a whole query."""

    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> types.TypeEngine[Any]:
        if is_mysql(dialect):
            return super().load_dialect_impl(dialect)
        return dialect.type_descriptor(_LenientDateTime())  # type: ignore[no-untyped-call]


class _LenientDateTime(sqlite.DATETIME):
    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        strict: Any = super().result_processor(dialect, coltype)

        def lenient(value: Any) -> datetime | None:
            try:
                found: datetime | None = strict(value)
            except (TypeError, ValueError):
                return None
            return found

        return lenient


class Json(types.TypeDecorator[Any]):
    """JSON; a Python None is stored as SQL NULL, not as the JSON text null."""

    impl = types.JSON
    cache_ok = True

    def __init__(self) -> None:
        super().__init__(none_as_null=True)

    def __repr__(self) -> str:
        return "Json()"


@dataclass(frozen=True, slots=True)
class JsonText:
    """A value of a Json column that is JSON text already, and is stored as it is."""

    text: str


class WideNumber(types.TypeDecorator[int]):
    """DECIMAL(38,0) as an int; on SQLite, which has no exact numbers that wide, sortable text."""

    impl = types.Numeric
    cache_ok = True

    _BIAS = 10**38

    def load_dialect_impl(self, dialect: Dialect) -> types.TypeEngine[Any]:
        if is_mysql(dialect):
            return dialect.type_descriptor(mysql.DECIMAL(38, 0))
        return dialect.type_descriptor(types.String(39))

    def process_bind_param(self, value: int | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if abs(value) >= self._BIAS:
            raise ValueError(f"{value} does not fit 38 digits")
        # shifted by the bias every value is positive, and padded text sorts as numbers do
        return Decimal(value) if is_mysql(dialect) else f"{value + self._BIAS:039d}"

    def process_result_value(self, value: Any, dialect: Dialect) -> int | None:
        if value is None:
            return None
        return int(value) if is_mysql(dialect) else int(value) - self._BIAS

    def __repr__(self) -> str:
        return "WideNumber()"


class ExactNumber(types.TypeDecorator[Decimal]):
    """DECIMAL(38,10); on SQLite, whose NUMERIC is a float, plain decimal text, which SUM still reads as a number."""

    impl = types.Numeric
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> types.TypeEngine[Any]:
        if is_mysql(dialect):
            return dialect.type_descriptor(mysql.DECIMAL(38, DECIMALS))
        return dialect.type_descriptor(types.String(40))

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        if value is None:
            return None
        number = exact_number(value)
        return number if is_mysql(dialect) else decimal_text(number)

    def process_result_value(self, value: Any, dialect: Dialect) -> Decimal | None:
        return None if value is None else exact_number(value)

    def __repr__(self) -> str:
        return "ExactNumber()"


# SQLite numbers its rows only in a column declared INTEGER.
BigId = BigInteger().with_variant(Integer(), "sqlite")
Blob = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


class utc_now(FunctionElement[datetime]):
    """The server's clock in UTC with microseconds, as a default or in a statement."""

    type = Instant()
    inherit_cache = True


@compiles(utc_now, "mysql")
@compiles(utc_now, "mariadb")
def _utc_now_mysql(element: utc_now, compiler: SQLCompiler, **kw: Any) -> str:
    # UTC_TIMESTAMP, not CURRENT_TIMESTAMP, which follows the time_zone of the session: ETL jobs set their own
    return "(UTC_TIMESTAMP(6))"


@compiles(utc_now, "sqlite")
def _utc_now_sqlite(element: utc_now, compiler: SQLCompiler, **kw: Any) -> str:
    return "(strftime('%Y-%m-%d %H:%M:%f000', 'now'))"
