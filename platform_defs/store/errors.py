"""Errors of the relational store.

StoreError
├── StoreUnavailable     no connection within the timeout, or lost; trying again may help
├── SchemaBehind         migrations are missing: run `platform db upgrade`
├── SchemaAhead          a newer version of the platform has migrated this database
└── PacketTooLarge       one statement exceeds the server's max_allowed_packet; trying again cannot help
"""

from platform_defs.errors import StoreError


class StoreUnavailable(StoreError):
    """The database does not answer."""


class SchemaBehind(StoreError):
    """The database lacks migrations that this code needs."""


class SchemaAhead(StoreError):
    """The database has migrations that this code does not know."""


class PacketTooLarge(StoreError):
    """A statement is larger than the server accepts."""
