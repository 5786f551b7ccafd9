"""The systems that the API serves. Adding one to the API means adding its `SYSTEM` here."""

from platform_defs.api import arrivals, chains, ingest, lineage
from platform_defs.api.system import ApiSystem

# Services are opened in this order and closed in the reverse order; /docs lists the paths in it.
SYSTEMS: tuple[ApiSystem, ...] = (lineage.SYSTEM, arrivals.SYSTEM, ingest.SYSTEM, chains.SYSTEM)
