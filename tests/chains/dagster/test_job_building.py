"""What the job of a chain shows of its nodes before any run."""

from dagster import Definitions

from assets.chains.job_building import build_job
from platform_defs.chains.dag import parse_snapshot


def test_every_node_has_a_badge_and_a_description_with_its_type_and_two_chains_load_together() -> None:
    nodes = [
        {"id": "count", "type": "sql", "cfg": {}},
        {"id": "tell", "type": "http", "dependsOn": ["count"], "cfg": {}},
        {"id": "odd", "type": "my-own.type", "cfg": {}},
    ]
    first = build_job(parse_snapshot({"nodes": nodes}), "chain_first", tags={})
    second = build_job(parse_snapshot({"nodes": nodes[:1]}), "chain_second", tags={})
    Definitions.validate_loadable(Definitions(jobs=[first, second]))
    for node in nodes:
        definition = first.graph.node_named(str(node["id"])).definition
        assert definition.tags["kind"] == node["type"]
        assert f"A node of the type {node['type']};" in (definition.description or "")
