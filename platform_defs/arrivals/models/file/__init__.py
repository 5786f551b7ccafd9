"""Reads models and KPIs from a YAML file; a file with problems is refused as a whole, with the line of each."""

from platform_defs.arrivals.models.file.checking import FileContents, KnownKpis, check_file
from platform_defs.arrivals.models.file.reading import ModelFile, read_file

__all__ = ["FileContents", "KnownKpis", "ModelFile", "check_file", "read_file"]
