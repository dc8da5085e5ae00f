"""Turn OpenRouter's public list of models into the text of a catalog file.

What cannot be priced exactly, produces no text or has a free-form price is left out and named. One US dollar becomes
one credit unless a factor says otherwise.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any

from shared.models.catalog_schema import ModelTable

TOKENS_PER_PRICE = 1_000_000
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
    """The text of a catalog file, and a line for each model that was left out."""

    toml: str
    left_out: tuple[str, ...]


class NotAModelList(Exception):
    """This is not the JSON that OpenRouter's list of models answers."""


def import_openrouter(text: str | bytes, *, credits_per_dollar: Decimal = Decimal(1)) -> Import:
    """Make a catalog of the answer of `GET /api/v1/models`; prices are rounded up at the sixth decimal place.

    Raises NotAModelList.
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
            models[name] = _checked("".join(_model(entry, credits_per_dollar)))
        except _LeftOut as reason:
            left_out.append(f"{name}: {reason}")
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            left_out.append(f"{name}: is not in the known form")
    return Import(toml=_HEAD.format(count=len(models)) + "".join(models.values()), left_out=tuple(left_out))


class _LeftOut(Exception):
    pass


def _model(entry: Mapping[str, Any], credits_per_dollar: Decimal) -> Iterator[str]:
    architecture, top = entry["architecture"], entry.get("top_provider") or {}
    if "text" not in architecture["output_modalities"]:
        raise _LeftOut("does not produce text")
    prices = {key: _price(entry["pricing"][key], credits_per_dollar) for key in ("prompt", "completion")}
    context_length = entry.get("context_length") or None
    most = top.get("max_completion_tokens") or None
    yield "\n[[models]]\n"
    yield _line("id", entry["id"])
    yield _line("name", str(entry["name"])[:200])
    yield _line("description", str(entry.get("description") or "")[:4000])
    yield _line("provider", entry["id"].partition("/")[0].lstrip("~"))
    yield _line("created", int(entry["created"]))
    yield _line("prompt_price", prices["prompt"])
    yield _line("completion_price", prices["completion"])
    for direction in ("input_modalities", "output_modalities"):
        yield _line(direction, [item for item in architecture[direction] if item in _MODALITIES])
    if context_length:
        yield _line("context_length", int(context_length))
    if most:
        yield _line("max_completion_tokens", min(int(most), int(context_length or most)))
    if entry.get("knowledge_cutoff"):
        yield _line("knowledge_cutoff", str(entry["knowledge_cutoff"]))
    yield f'upstreams = [{{ provider = "openrouter", model = {_quoted(entry["id"])} }}]\n'


def _checked(table: str) -> str:
    """Give the text back if a catalog may hold it. Raises ValueError."""
    ModelTable.model_validate(tomllib.loads(table)["models"][0])
    return table


def _price(dollars_per_token: object, credits_per_dollar: Decimal) -> str:
    price = Decimal(str(dollars_per_token)) * TOKENS_PER_PRICE * credits_per_dollar
    if not price.is_finite() or price < 0:
        raise _LeftOut("has no fixed price")  # OpenRouter writes -1 for routers that pick a model themselves
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
    """Write a TOML basic string: JSON's escapes are TOML's, but DEL must be escaped and lone surrogates cannot be."""
    clean = text.encode("utf-8", "replace").decode()
    return json.dumps(clean, ensure_ascii=False).replace("\x7f", "\\u007f")
