"""Models and KPIs from a YAML file: every problem with its line, and nothing half-loaded."""

from platform_defs.arrivals.models.file.checking import Contents, Known, checked
from platform_defs.arrivals.models.file.reading import ModelFile, read_file

__all__ = ["Contents", "Known", "ModelFile", "checked", "read_file"]
