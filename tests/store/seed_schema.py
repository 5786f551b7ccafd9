"""What the seeds and wire-formats name, written by hand from them: columns, unique keys and indexes of each table.

Where this differs from the letter of a seed, the line says why: a key over a long text is a key over its SHA-256, and
an index that is the beginning of another one on the same table is not built twice.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Seed:
    columns: str
    unique: dict[str, str] = field(default_factory=dict)
    indexes: dict[str, str] = field(default_factory=dict)
    primary_key: str = "id"


CFG = (
    "id created_at updated_at provenance_code endpoint_name operation_type effective_from effective_to"
    " lifecycle_status_code "
)

SEEDS: dict[str, Seed] = {
    # seed 000, 4.5
    "lineage_events": Seed(
        "id tenant_id tenant_code tenant_name event_time event_type run_uuid job_name job_namespace producer"
        " _event_type event created_at fingerprint graph_applied_at",
        {"uk_le_fingerprint": "tenant_id fingerprint"},
        {
            "idx_le_tenant_time": "tenant_id event_time",
            "idx_le_tenant_event_type_time": "tenant_id _event_type event_time",
            "idx_le_tenant_run_time": "tenant_id run_uuid event_time",
            "idx_le_tenant_job_time": "tenant_id job_namespace job_name event_time",
            "idx_le_created_at": "created_at",
        },
    ),
    # seed 000, 8.3
    "ol_async_task": Seed(
        "id task_type tenant_id tenant_code resource_type resource_id content_hash model_fingerprint status priority"
        " retry_count max_retry next_run_at claim_token claim_until last_error created_at updated_at",
        {"uq_task_dedup": "task_type tenant_id resource_type resource_id model_fingerprint content_hash"},
        {
            "idx_task_poll": "status next_run_at priority id",
            "idx_task_tenant": "tenant_id task_type status next_run_at",
        },
    ),
    "ol_async_task_attempt": Seed(
        "id task_id attempt_no worker_id started_at finished_at status batch_no input_size latency_ms error_type"
        " error_message created_at",
        {},
        {"idx_attempt_task": "task_id attempt_no", "idx_attempt_batch": "batch_no"},
    ),
    "ol_async_batch": Seed(
        "id batch_no task_type tenant_id model_fingerprint worker_id planned_size success_count failed_count"
        " started_at finished_at status created_at",
        {"uq_batch_no": "batch_no"},
        {"idx_batch_tenant_type_time": "tenant_id task_type created_at"},
    ),
    # seed 001, 7.1; wire-formats 6
    "ing_schedule_instance": Seed(
        "id created_at updated_at scheduler_code scheduler_job_id scheduler_log_id trigger_type_code triggered_at"
        " trigger_params provenance_code endpoint_name operation_code expr_proto_hash expr_proto_snapshot"
        " record_remarks",
        {},
        {"idx_sched_src": "scheduler_code scheduler_job_id scheduler_log_id"},
    ),
    # seed 001, 7.2 and 13.3.6; seed 004, 4.2: idx_plan_prov_op begins idx_plan_src_op_time
    "ing_plan": Seed(
        "id created_at updated_at schedule_instance_id plan_key provenance_code endpoint_name operation_code"
        " expr_proto_hash expr_proto_snapshot provenance_config_snapshot provenance_config_hash spec_fingerprint"
        " slice_strategy_code slice_params window_from window_to status_code record_remarks version",
        {"uk_plan_key": "plan_key"},
        {
            "idx_plan_src_op_time": "provenance_code operation_code created_at",
            "idx_plan_expr": "expr_proto_hash",
        },
    ),
    # seed 001, 7.3; seed 004, 4.2
    "ing_plan_slice": Seed(
        "id created_at updated_at plan_id provenance_code slice_no slice_signature_hash slice_spec expr_hash"
        " expr_snapshot status_code",
        {"uk_slice_no": "plan_id slice_no", "uk_slice_sig": "plan_id slice_signature_hash"},
        {"idx_slice_status": "plan_id status_code", "idx_slice_prov_status": "provenance_code status_code"},
    ),
    # seed 001, 7.4 and 13.3.1; seed 004, 4.2: idx_task_slice is the unique key of slice_id
    "ing_task": Seed(
        "id created_at updated_at schedule_instance_id plan_id slice_id provenance_code endpoint_name operation_code"
        " credential_id params idempotent_key expr_hash priority lease_owner leased_until lease_count"
        " last_heartbeat_at retry_count last_error_code last_error_msg status_code scheduled_at started_at"
        " finished_at correlation_id version",
        {"uk_task_idem": "idempotent_key", "uk_task_slice": "slice_id"},
        {
            "idx_task_queue": "status_code leased_until priority scheduled_at id",
            "idx_task_pick": "status_code priority scheduled_at provenance_code operation_code",
            "idx_task_src_op": "provenance_code operation_code status_code",
            "idx_task_cred": "credential_id",
        },
    ),
    # seed 001, 7.5 and 13.3.2: idx_run_task_status begins idx_run_task
    "ing_task_run": Seed(
        "id created_at updated_at task_id attempt_no provenance_code operation_code status_code checkpoint stats error"
        " window_from window_to started_at finished_at last_heartbeat correlation_id",
        {"uk_run_attempt": "task_id attempt_no"},
        {
            "idx_run_task": "task_id status_code created_at",
            "idx_run_prov_op_status": "provenance_code operation_code status_code",
        },
    ),
    # seed 001, 7.6 and 13.3.3: before_token is a long key
    "ing_task_run_batch": Seed(
        "id created_at updated_at run_id task_id slice_id plan_id expr_hash provenance_code operation_code batch_no"
        " page_no page_size before_token before_token_hash after_token next_url request_digest response_digest"
        " idempotent_key record_count status_code committed_at error stats",
        {
            "uk_run_batch_no": "run_id batch_no",
            "uk_run_before_tok": "run_id before_token_hash",
            "uk_batch_idem": "idempotent_key",
        },
        {
            "idx_batch_time": "run_id created_at",
            "idx_batch_status": "run_id status_code",
            "idx_batch_prov_op_status": "provenance_code operation_code status_code committed_at",
        },
    ),
    # seed 001, 7.7, 10.7 and 13.3.4
    "ing_cursor": Seed(
        "id created_at updated_at provenance_code operation_code cursor_key namespace_scope_code namespace_key"
        " cursor_type_code cursor_value observed_max_value normalized_instant normalized_numeric schedule_instance_id"
        " plan_id slice_id task_id last_run_id last_batch_id expr_hash version",
        {"uk_cursor_ns": "provenance_code operation_code cursor_key namespace_scope_code namespace_key"},
        {
            "idx_cursor_time": "provenance_code operation_code normalized_instant",
            "idx_cursor_id": "provenance_code operation_code normalized_numeric",
            "idx_cursor_sort_time": "cursor_type_code normalized_instant",
            "idx_cursor_sort_id": "cursor_type_code normalized_numeric",
        },
    ),
    # seed 001, 7.8 and 13.3.5
    "ing_cursor_event": Seed(
        "id created_at updated_at provenance_code operation_code cursor_key namespace_scope_code namespace_key"
        " direction_code prev_value new_value prev_instant new_instant observed_max_value window_from window_to"
        " idempotent_key schedule_instance_id plan_id slice_id task_id run_id batch_id expr_hash record_remarks",
        {"uk_cur_evt_idem": "idempotent_key"},
        {
            "idx_cur_evt_timeline": "provenance_code operation_code namespace_scope_code namespace_key created_at",
            "idx_cur_evt_instant": "provenance_code operation_code new_instant",
            "idx_cur_evt_numeric": "provenance_code operation_code new_numeric",
            "idx_cur_evt_lineage": "schedule_instance_id plan_id slice_id task_id run_id",
        },
    ),
    # the design's contract; seed 001, 4.9
    "ing_record": Seed(
        "id provenance_code endpoint_name provider_id updated_at record created_at",
        {"uk_record_provider_id": "provenance_code endpoint_name provider_id"},
    ),
    # seed 001, 11.8 and 12.5
    "ing_record_quarantine": Seed(
        "id provenance_code endpoint_name plan_id slice_id task_id run_id batch_id request_digest response_fragment"
        " reason created_at"
    ),
    # wire-formats 6
    "reg_provenance": Seed(
        "id created_at updated_at provenance_code provenance_name base_url_default timezone_default docs_url is_active"
        " lifecycle_status_code",
        {"uk_provenance_code": "provenance_code"},
    ),
    "reg_prov_endpoint_def": Seed(
        CFG + "role http_method path_template items_path id_path updated_at_path two_phase_enabled linked_endpoint_name"
    ),
    "reg_prov_http_cfg": Seed(
        CFG + "default_headers_json timeout_connect_millis timeout_read_millis timeout_total_millis tls_verify_enabled"
        " proxy_url_value retry_after_policy_code retry_after_cap_millis"
    ),
    "reg_prov_pagination_cfg": Seed(
        CFG + "pagination_mode_code page_size_value max_pages_per_execution next_token_path next_url_path base1"
    ),
    "reg_prov_window_offset_cfg": Seed(
        CFG + "window_mode_code window_size_value window_size_unit_code calendar_align_to lookback_value"
        " lookback_unit_code overlap_value overlap_unit_code watermark_lag_seconds offset_type_code offset_field_key"
        " offset_date_format max_ids_per_window max_window_span_seconds supports_updated_since"
    ),
    "reg_prov_batching_cfg": Seed(
        CFG + "detail_fetch_batch_size ids_param_name ids_join_delimiter max_ids_per_request"
    ),
    "reg_prov_retry_cfg": Seed(
        CFG + "max_retry_times backoff_policy_type_code initial_delay_millis max_delay_millis exp_multiplier_value"
        " jitter_factor_ratio retry_http_status_json giveup_http_status_json retry_on_network_error"
        " circuit_break_threshold circuit_cooldown_millis"
    ),
    "reg_prov_rate_limit_cfg": Seed(
        CFG + "refill_rate_per_sec burst_capacity warmup_sec quota_hourly quota_daily max_concurrent_requests"
        " per_credential_qps_limit header_adaptive_enabled"
    ),
    "reg_prov_credential": Seed(CFG + "credential_alias auth_type_code location_code secret_ref"),
    "reg_prov_api_param_map": Seed(
        CFG + "std_key provider_param_name location_code default_value is_required transform_code"
    ),
    "reg_prov_expr_capability": Seed(CFG),
    "reg_prov_expr_render_rule": Seed(CFG),
    "reg_expr_field_dict": Seed("id created_at updated_at field_key"),
    "sys_dict_type": Seed("id created_at updated_at type_code", {"uk_dict_type": "type_code"}),
    "sys_dict_item": Seed("id created_at updated_at type_code item_code", {"uk_dict_item": "type_code item_code"}),
    "sys_dict_item_alias": Seed("id created_at updated_at type_code item_code external_code"),
    # seed 002, 2
    "metrics_model_dependency": Seed("id model_id dependency_table_name"),
    "metrics_etl_log": Seed("id table_name op_time arrival_time", {"uk_etl_log": "table_name op_time"}),
    "metrics_task_log": Seed("id model_id op_time status start_time end_time message compute_count storage_count"),
    "metrics_webhook_subscription": Seed("id kpi_id callback_url secret retry_num status team_name user_id created_at"),
    # wire-formats 5
    "metrics_model": Seed("model_id name state source_sql dimensions target", {"uk_model_id": "model_id"}),
    "metrics_kpi": Seed("kpi_id model_id expression", {"uk_kpi_id": "kpi_id"}),
    "metrics_kpi_value": Seed("kpi_id op_time dims kpi_value", {"uk_kpi_value": "kpi_id op_time dims_hash"}),
    # seed 003, C
    "job_chain_definition": Seed(
        "chain_id name description enabled version dag_json created_at updated_at",
        {"uk_job_chain_definition_name": "name"},
        primary_key="chain_id",
    ),
    "job_run": Seed(
        "run_id chain_id job_id job_name status dag_json created_at updated_at",
        {},
        {"idx_job_run_chain_id": "chain_id", "idx_job_run_job_id": "job_id"},
        primary_key="run_id",
    ),
    "job_run_node": Seed(
        "run_id node_id status attempt last_error artifact_json started_at ended_at", primary_key="run_id node_id"
    ),
    "job_run_checkpoint": Seed("run_id node_id checkpoint_json", primary_key="run_id node_id"),
    # wire-formats 4
    "job_definition": Seed("job_id name description type enabled config_json", primary_key="job_id"),
}

# (table, column) -> what information_schema says on MySQL
MYSQL_TYPES: dict[tuple[str, str], str] = {
    ("lineage_events", "id"): "bigint",
    ("lineage_events", "tenant_name"): "varchar(128)",
    ("lineage_events", "event_time"): "datetime(6)",
    ("lineage_events", "run_uuid"): "char(36)",
    ("lineage_events", "producer"): "varchar(512)",
    ("lineage_events", "event"): "json",
    ("lineage_events", "fingerprint"): "char(64)",
    ("ol_async_task", "model_fingerprint"): "varchar(256)",
    ("ol_async_task", "last_error"): "varchar(1024)",
    ("ol_async_task_attempt", "latency_ms"): "bigint",
    ("ing_cursor", "namespace_key"): "char(64)",
    ("ing_cursor", "normalized_instant"): "datetime(6)",
    ("ing_cursor", "normalized_numeric"): "decimal(38,0)",
    ("ing_task_run_batch", "before_token"): "longtext",
    ("ing_task_run_batch", "before_token_hash"): "char(64)",
    ("ing_record", "record"): "json",
    ("metrics_etl_log", "id"): "int",
    ("metrics_etl_log", "arrival_time"): "datetime(6)",
    ("metrics_kpi_value", "kpi_value"): "decimal(38,10)",
    ("metrics_task_log", "message"): "varchar(2000)",
    ("metrics_webhook_subscription", "secret"): "varchar(2048)",
    ("metrics_webhook_subscription", "callback_url"): "varchar(512)",
    ("job_chain_definition", "dag_json"): "json",
    ("job_run_node", "last_error"): "longtext",
}
