"""Models and KPIs from a YAML file: every problem with its line, and nothing half-loaded."""

from platform_defs.arrivals.models.file.checking import FileContents, KnownKpis, check_file
from platform_defs.arrivals.models.file.reading import ModelFile, read_file

__all__ = ["FileContents", "KnownKpis", "ModelFile", "check_file", "read_file"]
