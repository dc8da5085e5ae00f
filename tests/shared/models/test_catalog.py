"""The catalog file: valid keys, and the error for each mistake."""

from pathlib import Path

import pytest

from shared.models.catalog import Endpoint, ProviderKind
from shared.models.catalog_format import CatalogInvalid, parse_catalog, read_catalog
from shared.models.dialects.requests import Dialect

ROOT = Path(__file__).resolve().parents[3]
PROVIDER = '[providers.p]\nbase_url = "https://example.com/v1"\n'
MODEL = '[[models]]\nid = "maker/model"\nprompt_price = "1"\ncompletion_price = "2"\n'
UPSTREAMS = 'upstreams = [{ provider = "p", model = "m" }]\n'
GOOD = PROVIDER + MODEL + UPSTREAMS


def problems_of(text: str) -> list[str]:
    with pytest.raises(CatalogInvalid) as raised:
        parse_catalog(text, source="models.toml")
    return raised.value.problems


def test_the_example_is_a_catalog_with_every_field() -> None:
    catalog = read_catalog(ROOT / "deploy" / "models.example.toml")
    model = catalog.find("openai/gpt-5-mini")
    assert model is not None
    assert (model.prices.prompt, model.prices.completion) == (250_000, 2_000_000)
    assert model.created == 1_754_524_800
    assert model.knowledge_cutoff == "2024-05-31"
    assert [upstream.provider.name for upstream in model.upstreams] == ["openai", "openrouter"]
    assert [upstream.dialect for upstream in model.upstreams] == [Dialect.RESPONSES, Dialect.CHAT]
    assert model.upstreams[0].provider.api_key_env == "OPENAI_API_KEY"
    assert model.supports(Endpoint.RESPONSES)
    assert catalog.find("openai/GPT-5-mini") is None


def test_optional_key_has_a_default() -> None:
    model = parse_catalog(GOOD, source="x").entries[0]
    assert (model.name, model.provider, model.description) == ("maker/model", "p", "")
    assert (model.context_length, model.max_completion_tokens, model.concurrency_limit) == (None, None, None)
    assert model.input_modalities == model.output_modalities == ("text",)
    assert model.supported_endpoints == tuple(Endpoint)
    assert model.upstreams[0].dialect is Dialect.CHAT


@pytest.mark.parametrize(
    ("of_provider", "of_upstream", "streams_only"),
    [
        ("", "", False),
        ("streams_only = true\n", "", True),
        ("", ", streams_only = true", True),
        ("streams_only = true\n", ", streams_only = false", False),
    ],
)
def test_an_upstream_streams_only_if_it_or_else_its_provider_says_so(
    of_provider: str, of_upstream: str, *, streams_only: bool
) -> None:
    upstreams = UPSTREAMS.replace(' model = "m"', f' model = "m"{of_upstream}')
    model = parse_catalog(PROVIDER + of_provider + MODEL + upstreams, source="x").entries[0]
    assert model.upstreams[0].streams_only is streams_only


def test_models_that_produce_no_text_are_found_and_not_listed() -> None:
    catalog = parse_catalog(
        GOOD.replace(UPSTREAMS, UPSTREAMS + 'output_modalities = ["image"]\n'), source="x"
    )
    model = catalog.find("maker/model")
    assert model is not None
    assert not model.supports(Endpoint.RESPONSES)
    assert not catalog.entries


def test_a_scripted_provider_can_be_configured() -> None:
    text = GOOD.replace('base_url = "https://example.com/v1"', 'kind = "scripted"')
    assert parse_catalog(text, source="x").entries[0].upstreams[0].provider.kind is ProviderKind.SCRIPTED


@pytest.mark.parametrize(
    ("price", "micro"),
    [
        ("0", 0),
        ("1", 1_000_000),
        ("0.000001", 1),
        ("1.25", 1_250_000),
        ("1000000", 1_000_000_000_000),
    ],
)
def test_prices_are_exact(price: str, micro: int) -> None:
    model = parse_catalog(
        GOOD.replace('prompt_price = "1"', f'prompt_price = "{price}"'), source="x"
    ).entries[0]
    assert model.prices.prompt == micro


MISTAKES = [
    (
        "prompt_price = 1.5",
        'prompt_price = "1"',
        "models[0] (maker/model).prompt_price: must be a string of credits",
    ),
    (
        "prompt_price = 1",
        'prompt_price = "1"',
        "models[0] (maker/model).prompt_price: must be a string of credits",
    ),
    ('prompt_price = "-1"', 'prompt_price = "1"', "models[0] (maker/model).prompt_price: must be a string"),
    (
        'prompt_price = "1.0000001"',
        'prompt_price = "1"',
        "models[0] (maker/model).prompt_price: must be a string",
    ),
    ('prompt_price = "1e3"', 'prompt_price = "1"', "models[0] (maker/model).prompt_price: must be a string"),
    (
        'prompt_price = "1000000.1"',
        'prompt_price = "1"',
        "models[0] (maker/model).prompt_price: must be a string",
    ),
    ('prompt_price = "٣"', 'prompt_price = "1"', "models[0] (maker/model).prompt_price: must be a string"),
    ("", 'prompt_price = "1"', "models[0] (maker/model).prompt_price: is required"),
    ('id = "a//b"', 'id = "maker/model"', "models[0] (a//b).id: "),
    ('id = "a/../b"', 'id = "maker/model"', "models[0] (a/../b).id: "),
    ('id = "a b"', 'id = "maker/model"', "models[0] (a b).id: "),
    ("id = 7", 'id = "maker/model"', "models[0] (7).id: "),
    (
        'provider = "q"',
        'provider = "p"',
        "models[0] (maker/model).upstreams[0].provider: there is no [providers.q]",
    ),
    ('model = ""', 'model = "m"', "models[0] (maker/model).upstreams[0].model: "),
    ('dialect = "soap", model = "m"', 'model = "m"', "models[0] (maker/model).upstreams[0].dialect: "),
    ("upstreams = []", UPSTREAMS.strip(), "models[0] (maker/model).upstreams: "),
    ("retries = -1\n[[", "[[", "providers.p.retries: is not a known key"),
    (f"retries = 11\n{UPSTREAMS}", UPSTREAMS, "models[0] (maker/model).retries: "),
    (f"deadline_seconds = 0\n{UPSTREAMS}", UPSTREAMS, "models[0] (maker/model).deadline_seconds: "),
    (f"deadline_seconds = inf\n{UPSTREAMS}", UPSTREAMS, "models[0] (maker/model).deadline_seconds: "),
    (f"context_length = 0\n{UPSTREAMS}", UPSTREAMS, "models[0] (maker/model).context_length: "),
    (f"context_length = true\n{UPSTREAMS}", UPSTREAMS, "models[0] (maker/model).context_length: "),
    (
        f"context_length = 5\nmax_completion_tokens = 6\n{UPSTREAMS}",
        UPSTREAMS,
        "models[0] (maker/model).max_completion_tokens: is more than context_length",
    ),
    (
        f'input_modalities = ["smell"]\n{UPSTREAMS}',
        UPSTREAMS,
        "models[0] (maker/model).input_modalities[0]: ",
    ),
    (
        f'supported_endpoints = ["x"]\n{UPSTREAMS}',
        UPSTREAMS,
        "models[0] (maker/model).supported_endpoints[0]: ",
    ),
    (f"price = 3\n{UPSTREAMS}", UPSTREAMS, "models[0] (maker/model).price: is not a known key"),
    ("", 'base_url = "https://example.com/v1"', "providers.p.base_url: is required"),
    (
        'base_url = "ftp://x"',
        'base_url = "https://example.com/v1"',
        "providers.p.base_url: must begin with http",
    ),
    (
        'base_url = "https://u:p@x"',
        'base_url = "https://example.com/v1"',
        "providers.p.base_url: must not hold",
    ),
    (
        'base_url = "https://x?key=1"',
        'base_url = "https://example.com/v1"',
        "providers.p.base_url: must not have",
    ),
    (
        'kind = "scripted"\nbase_url = "https://x"',
        'base_url = "https://example.com/v1"',
        "providers.p.base_url: a scripted provider has no address",
    ),
    ('kind = "other"\n[[', "[[", "providers.p.kind: "),
    ('api_key = "sk-1"\n[[', "[[", "providers.p.api_key: is not a known key"),
    ('api_key_env = "sk-1"\n[[', "[[", "providers.p.api_key_env: "),
    (
        'headers = { Authorization = "Bearer x" }\n[[',
        "[[",
        "providers.p.headers.Authorization: is a secret; name the variable that holds it in api_key_env",
    ),
    (
        'headers = { api-key = "x" }\n[[',
        "[[",
        "providers.p.headers.api-key: is a secret; name the variable that holds it in header_envs",
    ),
    ('headers = { Host = "x" }\n[[', "[[", "providers.p: the header Host cannot be set here"),
    (
        'header_envs = { Authorization = "X" }\n[[',
        "[[",
        "providers.p: the header Authorization cannot be set here",
    ),
    ('headers = { X-A = "a\\nb" }\n[[', "[[", "providers.p.headers.X-A: "),
    ("connect_timeout_seconds = 0\n[[", "[[", "providers.p.connect_timeout_seconds: "),
    ("oops", 'prompt_price = "1"', "is not TOML: "),
    ("surplus = 1\n[providers.p]", "[providers.p]", "surplus: is not a known key"),
]


@pytest.mark.parametrize(("wrong", "right", "problem"), MISTAKES, ids=[f"{m[0][:40]!r}" for m in MISTAKES])
def test_mistake_is_reported_by_file_and_key(wrong: str, right: str, problem: str) -> None:
    assert right in GOOD
    [told] = problems_of(GOOD.replace(right, wrong, 1))
    assert told.startswith(f"models.toml: {problem}")


def test_all_mistakes_are_reported_up_to_a_maximum() -> None:
    told = problems_of(PROVIDER + "surprise = 1\n" + MODEL)
    assert told == [
        "models.toml: providers.p.surprise: is not a known key",
        "models.toml: models[0] (maker/model).upstreams: is required",
    ]
    many = problems_of(PROVIDER + MODEL * 50)
    assert many[-1] == "models.toml: and 30 more"
    assert len(many) == 21


def test_an_id_stands_for_one_model() -> None:
    assert problems_of(GOOD + MODEL + UPSTREAMS) == [
        "models.toml: models[1] (maker/model).id: another model has this id"
    ]


def test_a_catalog_without_models_is_a_mistake() -> None:
    assert problems_of(PROVIDER) == ["models.toml: models: is required"]
    assert problems_of("") == ["models.toml: providers: is required", "models.toml: models: is required"]
    assert problems_of("models = [3]\n[providers]")[0].startswith("models.toml: models[0]: ")


def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CatalogInvalid, match=r"absent\.toml: cannot be read: No such file"):
        read_catalog(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xff")
    with pytest.raises(CatalogInvalid, match=r"latin\.toml: is not UTF-8 at byte 2"):
        read_catalog(tmp_path / "latin.toml")


def test_ten_thousand_models_are_a_catalog() -> None:
    models = "".join(
        MODEL.replace("maker/model", f"maker/model-{number}") + UPSTREAMS for number in range(10_000)
    )
    catalog = parse_catalog(PROVIDER + models, source="x")
    assert len(catalog) == 10_000
    assert catalog.find("maker/model-9999") is catalog.entries[-1]
