"""The bounds of every setting: the last accepted value, the first refused one, and the test that covers "off"."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from shared.config.settings import Settings, load_settings
from shared.config.settings_errors import SettingsInvalid
from tests.support.processes.named_tests import is_test

ROOT = Path(__file__).parents[2]
GOOD = {
    "DATABASE_URL": "postgresql://u:pass@h/d",
    "REDIS_URL": "redis://h/0",
    "BLOB_STORE": "file:///b",
    "ENCRYPTION_KEYS": "k",
}
Limit = tuple[tuple[str, ...], tuple[str, ...]]
COUNT: Limit = ("1",), ("0", "-1", "1.5")
COUNT_OR_OFF: Limit = ("0", "1"), ("-1", "0.5")
SECONDS: Limit = ("0.001",), ("0", "-1")
SECONDS_OR_NONE: Limit = ("0", "0.001"), ("-0.001",)
SWITCH: Limit = ("true", "false"), ("maybe", "2")
ANY_TEXT: Limit = ("x",), ()
ADDRESS: Limit = ("postgresql://h/d",), ("mysql://h/d", "h")
VALKEY: Limit = ("redis://h/0", "rediss://h/0"), ("http://h", "amqp://h")

LIMITS: Mapping[str, Limit] = {
    "database_url": ADDRESS,
    "migrations_database_url": ADDRESS,
    "redis_url": VALKEY,
    "models_redis_url": VALKEY,
    "broker_url": (("redis://h/0", "sentinel://h", "amqp://h", "amqps://h"), ("http://h", "kafka://h")),
    "base_url": (("https://example.org", "http://h:1/"), ("h", "ftp://h")),
    "log_level": (("DEBUG", "ERROR"), ("debug", "NOTHING")),
    "default_agent": (("01a1fe71-8d97-7487-81f7-c15f2bf488a1",), ("x",)),
    "trusted_proxies": (("10.0.0.0/8,::1",), ("10.0.0.0/33", "proxy")),
    "payment_sources": (("{}",), ("[]", '{"A": {}}')),
    "first_run_credits": (("0", "999999999.999999"), ("-1", "1000000000", "0.0000001")),
    "storage_price": (("0", "9999.999999"), ("-1", "10000", "0.0000001")),
    "storage_month": (("30-days", "calendar"), ("31-days",)),
    "storage_grace_days": (("0", "3650"), ("-1", "3651")),
    "live_row_cache_seconds": (("0", "5"), ("-0.1", "5.1")),
    "operation_retention_days": (("30",), ("29",)),
    "task_retention_days": (("1",), ("0",)),
    "usage_record_days": (("35",), ("34", "0")),
    "concurrent_deliveries": (("1", "256"), ("0", "257")),
    **dict.fromkeys(
        (
            *("blob_store_reserve_bytes", "scrub_interval_days", "rate_limit_per_minute"),
            *("failed_logins_per_minute", "a2a_inline_artifact_bytes", "a2a_artifact_retention_days"),
        ),
        COUNT_OR_OFF,
    ),
    **dict.fromkeys(("upload_wait_seconds", "slot_wait_seconds"), SECONDS_OR_NONE),
    **dict.fromkeys(
        (
            *("upload_grace_seconds", "media_fetch_seconds", "media_grace_seconds", "message_wait_seconds"),
            *(
                "a2a_turn_seconds",
                "a2a_remote_retry_seconds",
                "a2a_remote_silence_seconds",
                "a2a_wait_seconds",
            ),
        ),
        SECONDS,
    ),
    **dict.fromkeys(
        (
            *("database_pool_size", "scrub_bytes_per_minute", "max_upload_bytes"),
            *("upload_minimum_bytes_per_second", "concurrent_uploads", "upload_kept_seconds"),
            *("open_uploads_per_caller", "open_uploads_per_organization", "concurrent_small_bodies"),
            *("concurrent_downloads", "queued_imports", "concurrent_imports", "max_media_bytes"),
            *("media_minimum_bytes_per_second", "media_attempts", "media_record_days"),
            *("max_model_request_bytes", "queued_model_calls", "concurrent_model_calls"),
            *("reserved_completion_tokens", "a2a_remote_answer_bytes", "a2a_remote_updates_per_second"),
            *("max_message_bytes", "streams_per_caller", "streams_per_process", "access_token_seconds"),
            *("attribution_seconds", "signing_key_days", "web_threads"),
        ),
        COUNT,
    ),
    **dict.fromkeys(
        (
            *(
                "database_pooler",
                "s3_checksums",
                "usage_cost",
                "absent_store_is_false",
                "a2a_require_version",
            ),
            *("a2a_push_notifications", "egress_allow_private", "egress_allow_http", "task_events"),
            "public_metrics",
        ),
        SWITCH,
    ),
    **dict.fromkeys(
        (
            *("encryption_keys", "blob_store", "second_blob_store", "s3_endpoint_url", "s3_region"),
            *("s3_access_key_id", "s3_secret_access_key", "x_accel_prefix", "models_config", "a2a_script"),
            *("a2a_cors_origins", "allowed_hosts", "github_issuers", "github_keys_file"),
            *("oidc_issuer", "oidc_client_id", "oidc_client_secret"),
            *("metrics_directory", "faults"),
        ),
        ANY_TEXT,
    ),
}
"""By setting: the accepted values at its bounds, and the refused values just beyond."""

OFF_TESTS = "tests/web/test_switched_off.py::"
UNLIMITED = f"{OFF_TESTS}test_limits_of_zero_are_disabled"
WITHOUT_WAITS = f"{OFF_TESTS}test_upload_works_without_reserve_and_timeouts"
AT_ZERO: Mapping[str, str] = {
    "blob_store_reserve_bytes": WITHOUT_WAITS,
    "scrub_interval_days": "tests/workers/test_due_rows.py::test_content_is_not_read_again_where_that_is_off",
    "rate_limit_per_minute": UNLIMITED,
    "failed_logins_per_minute": UNLIMITED,
    "upload_wait_seconds": WITHOUT_WAITS,
    "slot_wait_seconds": UNLIMITED,
    "a2a_inline_artifact_bytes": "tests/shared/a2a/behaviors/test_model_backed.py::"
    "test_a_long_reply_becomes_a_file_with_a_link",
    "a2a_artifact_retention_days": f"{OFF_TESTS}test_files_of_agents_have_no_deadline_where_that_is_off",
    "first_run_credits": f"{OFF_TESTS}test_first_start_without_credits_grants_none",
    "storage_price": "tests/shared/credits/storage_billing/test_daily_charges.py::"
    "test_days_that_cost_nothing_make_nothing_owed",
    "storage_grace_days": "tests/shared/credits/storage_billing/test_daily_charges.py::"
    "test_storage_without_grace_is_refused_at_once",
    "live_row_cache_seconds": "tests/shared/identity/authentication/test_caching.py::"
    "test_cache_entries_expire_and_zero_ttl_stores_nothing",
}
"""By setting that accepts 0: the test that covers its effect."""
TURNED: Mapping[str, str] = {
    "database_pooler": "tests/shared/db/test_role_limits.py::"
    "test_every_connection_behind_the_pooler_has_the_limits",
    "s3_checksums": "tests/shared/files/blobs/test_s3.py::test_a_server_that_refuses_checksums_gets_none",
    "usage_cost": "tests/shared/models/test_reply_costs.py",
    "absent_store_is_false": f"{OFF_TESTS}test_absent_store_means_false_if_configured",
    "a2a_require_version": "tests/web/a2a/test_errors.py",
    "a2a_push_notifications": "tests/web/a2a/test_errors.py",
    "egress_allow_private": "tests/shared/egress/test_addresses.py::"
    "test_metadata_servers_are_refused_where_private_addresses_are_allowed",
    "egress_allow_http": "tests/shared/egress/test_tls.py::"
    "test_credentials_do_not_change_to_plain_http_where_that_is_allowed",
    "task_events": "tests/workers/test_node.py",
    "public_metrics": "tests/shared/operations/test_operations_port.py",
}
"""By switch: the test that covers the value that is not the default."""


def load(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> Settings:
    for variable, good in {**GOOD, name.upper(): value}.items():
        monkeypatch.setenv(variable, good)
    return load_settings()


def takes_zero(name: str) -> bool:
    return "0" in LIMITS[name][0]


def test_every_setting_has_its_limits_here() -> None:
    assert LIMITS.keys() == Settings.model_fields.keys()


@pytest.mark.parametrize("name", LIMITS)
def test_setting_accepts_its_bound_and_refuses_the_next_value(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    taken, refused = LIMITS[name]
    for value in taken:
        load(monkeypatch, name, value)
    for value in refused:
        with pytest.raises((SettingsInvalid, ValueError)):
            load(monkeypatch, name, value)


def test_zero_is_accepted_if_the_setting_documents_it() -> None:
    """If a setting's documentation says "`0` for none", validation accepts 0."""
    environment = (ROOT / "deploy" / "environment.example").read_text()
    assert environment.count("; 0 for ") >= 5
    assert {name for name in LIMITS if takes_zero(name)} == AT_ZERO.keys()


def test_every_switch_and_every_zero_has_a_test() -> None:
    switches = {name for name, field in Settings.model_fields.items() if field.annotation is bool}
    assert switches == TURNED.keys()
    named = [*AT_ZERO.values(), *TURNED.values()]
    assert [name for name in named if not is_test(name)] == []
