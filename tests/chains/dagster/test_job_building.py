"""What the job of a chain shows of its nodes before any run."""

from dagster import Definitions
from sqlalchemy import create_engine

from assets.chains.job_building import WHAT_TYPES_DO, build_job
from platform_defs.chain_nodes.catalogue import all_node_types
from platform_defs.chains.dag import parse_snapshot
from platform_defs.settings import Settings


def test_every_node_says_what_it_is_by_a_badge_and_a_description_and_two_chains_load_together() -> None:
    nodes = [
        {"id": "count", "type": "sql", "cfg": {}},
        {"id": "tell", "type": "http", "dependsOn": ["count"], "cfg": {}},
        {"id": "odd", "type": "my-own.type", "cfg": {}},
    ]
    first = build_job(parse_snapshot({"nodes": nodes}), "chain_first", tags={})
    second = build_job(parse_snapshot({"nodes": nodes[:1]}), "chain_second", tags={})
    Definitions.validate_loadable(Definitions(jobs=[first, second]))
    descriptions = {
        "count": "Executes SQL on a named data source.",
        "tell": "Sends one HTTP request.",
        "odd": "A node of the type my-own.type.",
    }
    for node in nodes:
        definition = first.graph.node_named(str(node["id"])).definition
        assert definition.tags["kind"] == node["type"]
        assert definition.description == descriptions[node["id"]]


def test_every_type_that_the_platform_brings_says_what_it_does() -> None:
    # nothing of it is connected to
    engine = create_engine("sqlite://")
    assert all_node_types(engine, Settings(chain_shell=True)).by_name.keys() == WHAT_TYPES_DO.keys()
