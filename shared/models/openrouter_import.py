"""Convert OpenRouter's public list of models to the text of a catalog file.

Models without text output, with free-form prices, or with prices that cannot be charged exactly are left out and
reported. One US dollar becomes one credit unless a factor says otherwise.
"""

import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

from shared.models.catalog_format import ModelTable

TOKENS_PER_PRICE = 1_000_000
_PARTS = {
    "input_cache_read": "cached_prompt_price",
    "input_cache_write": "cache_write_price",
    "internal_reasoning": "reasoning_price",
}
"""The catalog's key for each price per token in OpenRouter's list, which writes 0 for an absent price."""
_ALIKE = {"image": "prompt", "image_token": "prompt", "audio": "prompt", "audio_output": "completion"}
"""Prices for media, by the price of the tokens as which the media count if both prices are the same."""
_MODALITIES = frozenset({"text", "image", "audio", "video", "file"})
_SIX_PLACES = Decimal("0.000001")
_HEAD = """\
# Imported from OpenRouter's list of models: {count} models. Prices are credits per million tokens.
[providers.openrouter]
base_url = "https://openrouter.ai/api/v1"
api_key_env = "OPENROUTER_API_KEY"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """The text of a catalog file, and one line for each model that was left out."""

    toml: str
    left_out: tuple[str, ...]


class NotAModelList(Exception):
    """The document is not the JSON of OpenRouter's list of models. Save the response of `GET /api/v1/models`."""


def import_openrouter(
    text: str | bytes, *, credits_per_dollar: Decimal = Decimal(1), uncharged: Collection[str] = ()
) -> Import:
    """Convert the response of `GET /api/v1/models` to a catalog; prices are rounded up to six decimal places.

    A model with a price that cannot be charged is left out, unless `uncharged` contains the name of the price. Raises
    NotAModelList.
    """
    try:
        entries = json.loads(text)["data"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotAModelList from error
    if not isinstance(entries, list):
        raise NotAModelList
    models, left_out = {}, []
    for entry in entries:
        name = str(entry.get("id") if isinstance(entry, dict) else entry)[:200]
        try:
            prices = _prices(entry["pricing"], credits_per_dollar, uncharged)
            # Check each model on its own, so that one invalid model does not make the whole file invalid.
            models[name] = _checked("".join(_model(entry, prices)))
        except _LeftOut as reason:
            left_out.append(f"{name}: {reason}")
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            left_out.append(f"{name}: is not in the known form")
    return Import(toml=_HEAD.format(count=len(models)) + "".join(models.values()), left_out=tuple(left_out))


class _LeftOut(Exception):
    pass


def _prices(
    listed: Mapping[str, Any], credits_per_dollar: Decimal, uncharged: Collection[str]
) -> dict[str, str]:
    """Return the prices by their keys in the catalog file."""
    per_token = credits_per_dollar * TOKENS_PER_PRICE
    prices = {f"{key}_price": _price(listed[key], per_token) for key in ("prompt", "completion")}
    charged_apart = {key for key in listed if _is_some(listed[key])} - {"prompt", "completion", *uncharged}
    for key in charged_apart & _PARTS.keys():
        prices[_PARTS[key]] = _price(listed[key], per_token)
    if "request" in charged_apart:
        prices["request_price"] = _price(listed["request"], credits_per_dollar)
    # Media at the price of text need no price of their own, because their tokens are counted with the text.
    alike = {key for key, whole in _ALIKE.items() if listed.get(key) == listed[whole]}
    unknown = charged_apart - _PARTS.keys() - {"request"} - alike
    if unknown:
        raise _LeftOut(f"has prices that cannot be charged exactly: {', '.join(sorted(unknown))}")
    return prices


def _is_some(price: object) -> bool:
    """Return whether a price is present; the list also writes 0 or an empty list for an absent one."""
    return bool(price) if price is None or isinstance(price, list) else Decimal(str(price)) != 0


def _model(entry: Mapping[str, Any], prices: Mapping[str, str]) -> Iterator[str]:
    architecture, top = entry["architecture"], entry.get("top_provider") or {}
    if "text" not in architecture["output_modalities"]:
        raise _LeftOut("does not produce text")
    context_length = entry.get("context_length") or None
    most = top.get("max_completion_tokens") or None
    yield "\n[[models]]\n"
    yield _line("id", entry["id"])
    yield _line("name", str(entry["name"])[:200])
    yield _line("description", str(entry.get("description") or "")[:4000])
    yield _line("provider", entry["id"].partition("/")[0].lstrip("~"))
    yield _line("created", int(entry["created"]))
    for key, price in sorted(prices.items()):
        yield _line(key, price)
    for direction in ("input_modalities", "output_modalities"):
        yield _line(direction, [item for item in architecture[direction] if item in _MODALITIES])
    if context_length:
        yield _line("context_length", int(context_length))
    if most:
        # Reduce the limit to the context length, because a catalog with a larger limit is invalid.
        yield _line("max_completion_tokens", min(int(most), int(context_length or most)))
    if entry.get("knowledge_cutoff"):
        yield _line("knowledge_cutoff", str(entry["knowledge_cutoff"]))
    yield f'upstreams = [{{ provider = "openrouter", model = {_quoted(entry["id"])} }}]\n'


def _checked(table: str) -> str:
    """Return the text if it is a valid model table. Raises ValueError."""
    ModelTable.model_validate(tomllib.loads(table)["models"][0])
    return table


def _price(dollars: object, factor: Decimal) -> str:
    price = Decimal(str(dollars)) * factor
    if not price.is_finite() or price < 0:
        # Refuse the price: OpenRouter writes -1 for a router, which chooses a model itself.
        raise _LeftOut("has no fixed price")
    return format(price.quantize(_SIX_PLACES, rounding=ROUND_CEILING).normalize(), "f")


def _line(key: str, value: str | int | list[str]) -> str:
    match value:
        case int():
            return f"{key} = {value}\n"
        case str():
            return f"{key} = {_quoted(value)}\n"
        case _:
            return f"{key} = [{', '.join(map(_quoted, value))}]\n"


def _quoted(text: str) -> str:
    """Return a TOML basic string."""
    # Write JSON, because its escapes are valid in TOML, but replace lone surrogates and DEL, which TOML does not allow.
    clean = text.encode("utf-8", "replace").decode()
    return json.dumps(clean, ensure_ascii=False).replace("\x7f", "\\u007f")
