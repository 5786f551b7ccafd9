"""Registry files that come with the platform, one per source."""

from importlib import resources

from platform_defs.ingest.errors import IngestError

PREFIX = "preset:"


def preset_names() -> list[str]:
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def read_preset(name: str) -> bytes:
    if name not in preset_names():
        raise IngestError(f"no preset is named {name!r}; there are {', '.join(preset_names())}")
    return resources.files(__name__).joinpath(f"{name}.yaml").read_bytes()
