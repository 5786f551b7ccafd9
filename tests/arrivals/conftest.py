"""A home with its database and a Dagster instance of its own, prepared once and copied for each test."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dagster import DagsterInstance
from sqlalchemy import Engine, text

from platform_defs import dagster_instance
from platform_defs.settings import Settings
from platform_defs.store.engine import open_engine
from platform_defs.upgrade import upgrade_stores


@dataclass(frozen=True)
class Home:
    path: Path
    engine: Engine
    instance: DagsterInstance


def _enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("PLATFORM_HOME", str(folder))
    settings = Settings.load()
    dagster_instance.prepare(settings)
    for name, value in dagster_instance.environment(settings).items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "home"
    with pytest.MonkeyPatch.context() as monkeypatch:
        settings = _enter(folder, monkeypatch)
        upgrade_stores(settings)
        engine = open_engine(settings.database_url)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE orders (op_time TEXT, region TEXT, amount REAL)"))
            connection.execute(text("INSERT INTO orders VALUES ('20251219', 'N', 5), ('20251219', 'S', 7)"))
        engine.dispose()
    return folder


@pytest.fixture
def home(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home of its own, whose database has a table `orders` with two regions in batch 20251219."""
    folder = tmp_path / "home"
    shutil.copytree(template, folder)
    settings = _enter(folder, monkeypatch)
    engine = open_engine(settings.database_url)
    with DagsterInstance.get() as instance:
        yield Home(folder, engine, instance)
    engine.dispose()
