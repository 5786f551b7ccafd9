"""URLs of databases, brought into the form that our drivers understand."""

from collections.abc import Sequence

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError


def normalize_source_url(value: str) -> str:
    """The URL of a data source, which may also be PostgreSQL."""
    if value.startswith("postgres://"):
        value = value.replace("postgres", "postgresql", 1)
    return normalize_database_url(value, ("mysql", "mariadb", "postgresql", "sqlite"))


def normalize_database_url(value: str, kinds: Sequence[str] = ("mysql", "mariadb", "sqlite")) -> str:
    """The database URL with our driver. The ValueError of a bad one never repeats it: it may contain a password."""
    try:
        url = make_url(value)
    except (ArgumentError, ValueError):
        raise ValueError("expected mysql+mysqlconnector://user:password@host/database or sqlite:///FILE") from None
    if url.drivername in ("mysql", "mariadb"):
        url = url.set(drivername=f"{url.drivername}+mysqlconnector")
    if url.get_backend_name() not in kinds:
        expected = f"{', '.join(kinds[:-1])} or {kinds[-1]}"
        raise ValueError(f"{url.get_backend_name()} is not supported; expected {expected}")
    if not url.database:
        raise ValueError("the URL names no database")
    return url.render_as_string(hide_password=False)
