"""The MetaData that all tables belong to, and the columns that nearly every table has."""

from datetime import UTC, datetime

from sqlalchemy import Column, MetaData

from platform_defs.store.types import BigId, Instant, utc_now

metadata = MetaData(
    naming_convention={
        "ix": "idx_%(table_name)s_%(column_0_N_name)s",
        "uq": "uk_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def now() -> datetime:
    return datetime.now(UTC)


def id_column() -> Column[int]:
    return Column("id", BigId, primary_key=True, autoincrement=True)


def created_at() -> Column[datetime]:
    return Column("created_at", Instant, nullable=False, server_default=utc_now())


def updated_at() -> Column[datetime]:
    # set by our statements: ON UPDATE CURRENT_TIMESTAMP exists on MySQL alone and follows the zone of the session
    return Column("updated_at", Instant, nullable=False, server_default=utc_now(), onupdate=now)
