"""A spec survives its way through JSON, and its hashes change with what they stand for alone."""

import json
from dataclasses import replace
from datetime import timedelta

from platform_defs.ingest.codes import Operation
from platform_defs.ingest.spec.model import OutputField
from platform_defs.ingest.spec.snapshot import (
    expr_proto_hash,
    mapping_hash,
    spec_as_json,
    spec_fingerprint,
    spec_from_json,
)
from tests.ingest.specs import paged_spec


def test_a_spec_reads_back_as_it_was_written() -> None:
    spec = paged_spec()
    assert spec_from_json(json.loads(json.dumps(spec_as_json(spec)))) == spec


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
