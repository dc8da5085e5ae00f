"""The import of OpenRouter's list of models, and its command."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.cli.main import main
from shared.models.catalog_format import parse_catalog
from shared.models.openrouter_import import NotAModelList, import_openrouter
from tests.support.models.prices import prices_of


def listed(**changes: Any) -> dict[str, Any]:
    """One entry, as the list had it in 2026."""
    return {
        "id": "openai/gpt-5-mini",
        "canonical_slug": "openai/gpt-5-mini-2025-08-07",
        "name": "OpenAI: GPT-5 Mini",
        "created": 1754587407,
        "description": 'A "compact" model\nfor everyone \x7f é',
        "context_length": 400000,
        "architecture": {
            "input_modalities": ["text", "image", "file", "telepathy"],
            "output_modalities": ["text"],
            "modality": "text+image->text",
            "tokenizer": "GPT",
        },
        "pricing": {"prompt": "0.00000025", "completion": "0.000002", "request": "0"},
        "top_provider": {"context_length": 400000, "max_completion_tokens": 128000, "is_moderated": True},
        "supported_parameters": ["tools"],
        "knowledge_cutoff": "2024-05-31",
        "per_request_limits": None,
    } | changes


def imported(*entries: Any, **options: Any) -> tuple[Any, tuple[str, ...]]:
    result = import_openrouter(json.dumps({"data": entries}), **options)
    return parse_catalog(result.toml, source="imported"), result.left_out


def test_an_entry_becomes_a_model_with_prices_per_million() -> None:
    catalog, left_out = imported(listed())
    model = catalog.find("openai/gpt-5-mini")
    assert not left_out
    assert (model.prices.prompt, model.prices.completion) == (250_000, 2_000_000)
    assert (model.context_length, model.max_completion_tokens) == (400_000, 128_000)
    assert model.description == 'A "compact" model\nfor everyone \x7f é'
    assert model.input_modalities == ("text", "image", "file")
    assert (model.provider, model.created, model.knowledge_cutoff) == ("openai", 1754587407, "2024-05-31")
    assert model.upstreams[0].provider.api_key_env == "OPENROUTER_API_KEY"
    assert model.upstreams[0].model == "openai/gpt-5-mini"


def test_a_dollar_may_be_any_number_of_credits_and_fractions_round_up() -> None:
    catalog, _ = imported(
        listed(pricing={"prompt": "0.0000000000005", "completion": "0.000002"}),
        credits_per_dollar=Decimal("1.5"),
    )
    prices = catalog.entries[0].prices
    assert (prices.prompt, prices.completion) == (1, 3_000_000)


def priced(**prices: Any) -> dict[str, Any]:
    return listed(pricing={"prompt": "0.000001", "completion": "0.000002", **prices})


def test_every_component_of_a_price_is_imported() -> None:
    catalog, left_out = imported(
        priced(
            request="0.01",
            input_cache_read="0.0000001",
            input_cache_write="0.00000125",
            internal_reasoning="0.000003",
        )
    )
    assert not left_out
    assert catalog.entries[0].prices == prices_of(
        prompt=1_000_000,
        completion=2_000_000,
        cached_prompt=100_000,
        cache_write=1_250_000,
        reasoning=3_000_000,
        request=10_000,
    )


def test_a_part_that_is_listed_as_zero_costs_as_its_whole() -> None:
    catalog, _ = imported(priced(input_cache_read="0", internal_reasoning="0", request="0", web_search="0"))
    prices = catalog.entries[0].prices
    assert (prices.cached_prompt, prices.reasoning, prices.request) == (1_000_000, 2_000_000, 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("web_search", "0.01"),
        ("image", "0.005"),
        ("audio", "0.00001"),
        ("audio_output", "0.000001"),
        ("image_output", "0.00003"),
        ("input_audio_cache", "0.00000003"),
        ("discount", 0.5),
        ("overrides", [{"min_prompt_tokens": 200000, "prompt": "0.0000025"}]),
        ("of_tomorrow", "0.1"),
    ],
)
def test_model_with_an_unsupported_price_is_left_out_unless_it_is_ignored(key: str, value: Any) -> None:
    result = import_openrouter(json.dumps({"data": [priced(**{key: value})]}))
    assert result.left_out == (f"openai/gpt-5-mini: has prices that cannot be charged exactly: {key}",)
    catalog, left_out = imported(priced(**{key: value}), uncharged=(key,))
    assert (len(catalog), left_out) == (1, ())


def test_media_priced_as_prompt_tokens_have_no_separate_price() -> None:
    catalog, left_out = imported(priced(image="0.000001", audio="0.000001", audio_output="0.000002"))
    assert (len(catalog), left_out) == (1, ())


def test_unsupported_model_is_left_out_and_named() -> None:
    catalog, left_out = imported(
        listed(),
        listed(id="a/router", pricing={"prompt": "-1", "completion": "-1"}),
        listed(id="a/painter", architecture={"input_modalities": ["text"], "output_modalities": ["image"]}),
        listed(id="a/odd", pricing={}),
        listed(id="not an id"),
        "nonsense",
    )
    assert len(catalog) == 1
    assert list(left_out) == [
        "a/router: has no fixed price",
        "a/painter: does not produce text",
        "a/odd: is not in the known form",
        "not an id: is not in the known form",
        "nonsense: is not in the known form",
    ]


def test_gaps_in_an_entry_are_gaps_in_the_model() -> None:
    catalog, _ = imported(
        listed(top_provider=None, knowledge_cutoff=None, context_length=None, description=None)
    )
    model = catalog.entries[0]
    assert (model.context_length, model.max_completion_tokens, model.knowledge_cutoff) == (None, None, None)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"data": 3}', "null"])
def test_anything_else_is_not_a_list_of_models(text: str) -> None:
    with pytest.raises(NotAModelList):
        import_openrouter(text)


@settings(deadline=None)
@given(st.text(max_size=50), st.text(max_size=50))
def test_any_text_survives_or_is_left_out(name: str, description: str) -> None:
    catalog, _ = imported(listed(id="a/safe"), listed(name=name, description=description))
    model = catalog.find("openai/gpt-5-mini")
    assert model is None or model.description == description.encode("utf-8", "replace").decode()


def test_the_commands_import_and_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    searched = priced(web_search="0.01") | {"id": "a/searcher"}
    (tmp_path / "list.json").write_text(json.dumps({"data": [listed(), listed(id="bad id"), searched]}))
    made = CliRunner().invoke(main, ["models", "import-openrouter", str(tmp_path / "list.json")])
    assert made.exit_code == 0
    assert "Left out: bad id" in made.stderr
    assert "Left out: a/searcher: has prices that cannot be charged exactly: web_search" in made.stderr
    arguments = ["models", "import-openrouter", "--uncharged", "web_search", str(tmp_path / "list.json")]
    assert "a/searcher" in CliRunner().invoke(main, arguments).stdout
    (tmp_path / "models.toml").write_text(made.stdout)
    checked = CliRunner().invoke(main, ["models", "check", str(tmp_path / "models.toml")])
    assert checked.exit_code == 0
    assert "1 models of 1 providers" in checked.stdout
    assert "OPENROUTER_API_KEY (provider openrouter)" in checked.stderr


def test_check_names_mistakes_of_the_configured_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models.toml").write_text("surplus = 1\n[providers]")
    monkeypatch.setenv("MODELS_CONFIG", str(tmp_path / "models.toml"))
    checked = CliRunner().invoke(main, ["models", "check"])
    assert checked.exit_code == 1
    assert "models.toml: surplus: is not a known key" in checked.stderr
