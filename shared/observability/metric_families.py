"""A process's metrics as plain data: functions that read, write, load and add snapshots of all metrics."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

PREFIX = "quartermaster_"
_NO_SNAPSHOT = (OSError, ValueError, TypeError, KeyError, AttributeError)

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Family:
    """A metric: its type and help text, and each series' value with, for a `LatestGauge`, the time it was set."""

    kind: str
    meaning: str
    series: dict[tuple[str, Labels], tuple[float, float | None]]


Families = dict[str, Family]


def snapshot(metrics: Iterable[Metric]) -> Families:
    """Return the current values of this process's metrics."""
    families: Families = {}
    for metric in metrics:
        if metric.name.startswith(PREFIX):
            series = {
                (sample.name, tuple(sample.labels.items())): (sample.value, _set_at(sample))
                for sample in metric.samples
            }
            families[metric.name] = Family(metric.type, metric.documentation, series)
    return families


def _set_at(sample: Sample) -> float | None:
    return None if sample.timestamp is None else float(sample.timestamp)


def add(total: Families, other: Mapping[str, Family], *, is_alive: bool) -> None:
    """Add a snapshot: counters are summed, the newest `LatestGauge` wins, other gauges need a live process."""
    for name, family in other.items():
        # Skip a plain gauge (connections in use, free slots) of an ended process: its value no longer means
        # anything.
        if family.kind == "gauge" and not is_alive:
            series = {key: value for key, value in family.series.items() if value[1] is not None}
        else:
            series = family.series
        known = total.setdefault(name, Family(family.kind, family.meaning, {})).series
        for key, (value, set_at) in series.items():
            mine = known.get(key)
            if mine is None:
                known[key] = (value, set_at)
            elif set_at is None:
                known[key] = (mine[0] + value, None)
            elif set_at > (mine[1] or 0.0):
                known[key] = (value, set_at)


def as_metrics(families: Families) -> Iterator[Metric]:
    """Yield the families as objects that the client library can render."""
    for name, family in families.items():
        metric = Metric(name, family.meaning, family.kind)
        for (sample, labels), (value, _) in family.series.items():
            metric.add_sample(sample, dict(labels), value)
        yield metric


def dump(families: Families, *, folded: Iterable[str] = ()) -> str:
    """Return a snapshot as JSON. `folded` names the snapshots that were already added to it."""
    written = {
        name: [family.kind, family.meaning, [[*key, *value] for key, value in family.series.items()]]
        for name, family in families.items()
    }
    return json.dumps({"folded": list(folded), "families": written}, separators=(",", ":"))


def load(path: Path) -> Families | None:
    """Read a snapshot. Return None if the file is missing or invalid."""
    with contextlib.suppress(*_NO_SNAPSHOT):
        return _read(json.loads(path.read_text()))
    return None


def load_folded(path: Path) -> tuple[Families, list[str]]:
    """Read the snapshot of ended processes and the names that it includes; both are empty without such a file."""
    with contextlib.suppress(*_NO_SNAPSHOT):
        written = json.loads(path.read_text())
        return _read(written), list(written["folded"])
    return {}, []


def _read(written: Mapping[str, Any]) -> Families:
    return {
        name: Family(
            kind,
            meaning,
            {
                (sample, tuple((label, word) for label, word in labels)): (value, set_at)
                for sample, labels, value, set_at in series
            },
        )
        for name, (kind, meaning, series) in written["families"].items()
    }
