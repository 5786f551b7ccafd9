"""A spec survives its way through JSON, and its hashes change with what they stand for alone."""

import json
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import timedelta

from platform_defs.ingest.codes import Operation
from platform_defs.ingest.spec import model
from platform_defs.ingest.spec.model import OutputField
from platform_defs.ingest.spec.snapshot import (
    expr_proto_hash,
    mapping_hash,
    spec_as_json,
    spec_fingerprint,
    spec_from_json,
)
from tests.ingest.specs import paged_spec

# What every snapshot has had from the first version on.
REQUIRED = {
    "HttpSpec": {"method", "base_url", "path_template"},
    "RequestParam": {"std_key", "name", "location"},
    "OutputField": {"name", "path"},
    "ResponseSpec": {"items_path", "id_path", "updated_at_path"},
    "CallSpec": {"endpoint_name", "role", "http", "params", "response"},
    "PaginationSpec": {"type"},
    "WindowSpec": {"start", "size", "min_size", "max_size", "align", "watermark_key"},
    "Spec": {
        *("provenance_code", "endpoint_name", "operation", "search", "detail", "two_phase", "auth", "pagination"),
        *("window", "retry", "rate", "batching", "expr"),
    },
    "CompiledSpec": {"spec"},
}


def test_a_spec_reads_back_as_it_was_written() -> None:
    spec = paged_spec()
    assert spec_from_json(json.loads(json.dumps(spec_as_json(spec)))) == spec


def test_a_plan_of_another_version_is_read_by_what_this_version_knows_of() -> None:
    """Of the version before it lacks settings that came since then; of the next one it has some that nobody knows."""
    spec = paged_spec()
    document = spec_as_json(spec)
    added_later = [("pagination", "lastPageAgain"), ("rate", "perCredential"), ("window", "filterIsInclusive")]
    for section, name in added_later:
        del document[section][name]
    del document["stockLimit"]
    document["pagination"]["fromTheNextVersion"] = 1
    assert spec_from_json(json.loads(json.dumps(document))) == spec


def test_a_setting_that_is_added_has_a_default_or_plans_that_stand_could_not_be_executed() -> None:
    kinds = [each for each in vars(model).values() if is_dataclass(each) and each.__module__ == model.__name__]
    required = {
        (kind.__name__, each.name)
        for kind in kinds
        for each in fields(kind)
        if each.default is MISSING and each.default_factory is MISSING
    }
    assert {name: {field for kind, field in required if kind == name} for name, _ in required} == REQUIRED


def test_a_rate_changes_the_fingerprint_and_no_expression() -> None:
    spec = paged_spec()
    faster = replace(spec, rate=replace(spec.rate, refill_per_s=9.0))
    assert spec_fingerprint(faster) != spec_fingerprint(spec)
    assert expr_proto_hash(faster) == expr_proto_hash(spec)


def test_records_carry_a_hash_of_their_mapping_alone() -> None:
    spec = paged_spec()
    wider = replace(spec, window=replace(spec.window, size=timedelta(days=2)), operation=Operation.BACKFILL)
    assert mapping_hash(wider) == mapping_hash(spec)
    mapped = replace(spec, output_fields=(OutputField("title", "$.title"),))
    assert mapping_hash(mapped) != mapping_hash(spec)
