"""A setting that is wrong is named with its value, its bound and the remedy; a secret's value is not shown."""

import pytest
from pydantic import TypeAdapter, ValidationError

from shared.config.settings import Settings, load_settings
from shared.config.settings_errors import SettingsInvalid

GOOD = {
    "DATABASE_URL": "postgresql://u:pass@h/d",
    "REDIS_URL": "redis://h/0",
    "BLOB_STORE": "file:///b",
    "ENCRYPTION_KEYS": "k",
}
WRONG = ("-1", "0", "1", "nonsense", "1000000", "1e400", "6", "257", "{}")
UNBOUNDED = {
    *(name for name in Settings.model_fields if name.endswith(("_url", "_keys", "_key", "_key_id"))),
    *("a2a_cors_origins", "allowed_hosts", "github_issuers"),
    "payment_sources",
}
"""Secrets, which are not shown, and lists of any texts; `tests/web/credits/test_payments.py` has those of payments."""


def complaint(monkeypatch: pytest.MonkeyPatch, **changes: str) -> str | None:
    """Load the settings; return the message if they are invalid."""
    for name, value in {**GOOD, **changes}.items():
        monkeypatch.setenv(name, value)
    try:
        load_settings()
    except SettingsInvalid as wrong:
        return str(wrong)
    return None


def bounded() -> list[str]:
    """Return the settings that do not accept every text."""

    def takes(name: str, value: str) -> bool:
        field = Settings.model_fields[name]
        try:
            TypeAdapter(field.rebuild_annotation()).validate_python(value)
        except ValidationError:
            return False
        return True

    return [
        name
        for name in Settings.model_fields
        if name not in UNBOUNDED and not all(takes(name, value) for value in WRONG)
    ]


@pytest.mark.parametrize("name", bounded())
def test_a_value_out_of_bounds_is_named_with_its_bound_and_remedy(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    said = [(value, complaint(monkeypatch, **{name.upper(): value})) for value in WRONG]
    wrong = [(value, text) for value, text in said if text is not None]
    assert wrong
    for value, text in wrong:
        assert text.startswith(f"{name.upper()}={value} is not usable: "), text
        bound, _, remedy = text.partition("is not usable: ")[2].partition(". Change it")
        assert len(bound) > 10
        assert remedy.startswith(" or leave it out: the default is ")
        assert "\n" not in text


def test_a_price_out_of_bounds_says_what_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert complaint(monkeypatch, STORAGE_PRICE="1000000") == (
        "STORAGE_PRICE=1000000 is not usable: must be a number from 0 to 9999.999999, with at most six decimals. "
        "Change it or leave it out: the default is 0.025 (deploy/environment.example says what it is)."
    )


def test_a_number_out_of_bounds_says_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    told = complaint(monkeypatch, LIVE_ROW_CACHE_SECONDS="6")
    assert told is not None
    assert "LIVE_ROW_CACHE_SECONDS=6 is not usable: it should be less than or equal to 5. " in told


def test_every_wrong_setting_has_a_line_and_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    told = complaint(monkeypatch, DATABASE_URL="mysql://u:hunter2@h/d", LOG_LEVEL="loud", BLOB_STORE="")
    assert told is not None
    lines = told.splitlines()
    assert [line.partition(" is ")[0] for line in lines] == ["DATABASE_URL", "BLOB_STORE", "LOG_LEVEL=loud"]
    assert "must begin with postgresql://" in lines[0]
    assert "hunter2" not in told
