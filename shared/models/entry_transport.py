"""The catalog entry that travels with a call, from the front that held its credits to the worker that makes it.

A call keeps the entry it was accepted with: the worker may have read another file, or none that knows the model, and
price and upstream belong together. Protects one rule besides: a secret goes only where the worker's own catalog has
it go, so that who can write to Valkey cannot have it sent elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache

from pydantic import TypeAdapter

from shared.credits.prices import COMPONENTS
from shared.models.catalog import ModelEntry
from shared.models.catalog_file import CatalogFile

REMEMBERED = 4096
_ENTRY = TypeAdapter(ModelEntry)


@lru_cache(maxsize=REMEMBERED)
def write_entry(entry: ModelEntry) -> str:
    """Write an entry, without what is for readers of the catalog alone."""
    return _ENTRY.dump_json(replace(entry, name="", description="")).decode()


@lru_cache(maxsize=REMEMBERED)
def read_entry(text: str) -> ModelEntry:
    """Read an entry. Raises ValueError for what `write_entry` has not written.

    A front of the release before knows fewer prices: what it does not name is free, as in the invocation it has held.
    """
    values = json.loads(text)
    values["prices"] = dict.fromkeys(COMPONENTS, 0) | values["prices"]
    return _ENTRY.validate_python(values)


def trusted(entry: ModelEntry, catalog: CatalogFile) -> ModelEntry:
    """Leave out upstreams whose secrets the worker's own catalog has never sent to that address; maybe all."""
    upstreams = tuple(at for at in entry.upstreams if catalog.trusts(at.provider))
    return entry if len(upstreams) == len(entry.upstreams) else replace(entry, upstreams=upstreams)
