"""Documents as tables for a person at a terminal.

Text of others is shown as text: whatever could move the cursor or change colours is replaced.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

BAR_CELLS = 20
_NOTHING = "-"
_STEPS = " ▁▂▃▄▅▆▇█"


def render(shown: Mapping[str, Any], console: Console) -> None:
    """Print a resource as its fields, and each list in it as a table."""
    lists = {name: value for name, value in shown.items() if _is_list_of_objects(value)}
    cursor = shown.get("nextCursor")
    fields = {name: value for name, value in shown.items() if name not in lists and name != "nextCursor"}
    if fields:
        console.print(_fields(fields))
    if {"balance", "held"} <= fields.keys():
        console.print(_meter(float(fields["balance"]), float(fields["held"])))
    for name, rows in lists.items():
        _render_rows(name, [_flat(row) for row in rows], console)
        if len(steps := _costs_by_step(rows)) > 1:
            console.print(_text(f"cost  {sparkline(steps)}", style="green"))
    if cursor is not None:
        console.print(_text(f"More: --cursor {cursor}", style="dim"))
    if not fields and not lists:
        console.print(_text("Done.", style="green"))


def _render_rows(name: str, rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    if not rows:
        console.print(_text(f"No {name}.", style="dim"))
        return
    columns = [name for name in dict.fromkeys(key for row in rows for key in row) if _is_told(rows, name)]
    width = sum(max(len(column), *(len(plain(row.get(column))) for row in rows)) + 2 for column in columns)
    if width > console.width:
        for row in rows:
            console.print(_fields({column: row.get(column) for column in columns}))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    bars = _bars(rows)
    for column in columns:
        is_amount = all(_is_number(row.get(column)) for row in rows)
        table.add_column(_text(column), justify="right" if is_amount else "left", no_wrap=True)
    if bars:
        table.add_column("")
    for place, row in enumerate(rows):
        table.add_row(*(_text(plain(row.get(column))) for column in columns), *bars[place : place + 1])
    console.print(table)


def _fields(fields: Mapping[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, value in _flat(fields).items():
        grid.add_row(_text(name, style="bold"), _text(plain(value)))
    grid.add_row("", "")
    return grid


def _bars(rows: Sequence[Mapping[str, Any]]) -> list[Text]:
    """Draw what each row cost as a part of the dearest, where there is something to compare."""
    costs = [float(row["cost"]) for row in rows if _is_number(row.get("cost"))]
    is_alone = len(rows) <= 1
    if is_alone or len(costs) != len(rows) or max(costs) <= 0:
        return []
    return [_text("█" * round(BAR_CELLS * max(cost, 0) / max(costs)), style="green") for cost in costs]


def sparkline(values: Sequence[float]) -> str:
    """Draw values as a line of characters, the highest of them full."""
    top = max(values)
    return "".join(
        _STEPS[round((len(_STEPS) - 1) * max(value, 0) / top)] if top > 0 else " " for value in values
    )


def _costs_by_step(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Add up what each hour or day of a series cost, the oldest first."""
    costs: dict[str, float] = {}
    for row in rows:
        if row.get("startsAt") and _is_number(row.get("cost")):
            costs[row["startsAt"]] = costs.get(row["startsAt"], 0.0) + float(row["cost"])
    return [costs[step] for step in sorted(costs)]


def _meter(balance: float, held: float) -> Text:
    """Draw how much of a balance is held."""
    cells = round(BAR_CELLS * min(max(held / balance, 0), 1)) if balance > 0 else BAR_CELLS
    return Text.assemble(("█" * (BAR_CELLS - cells), "green"), ("░" * cells, "yellow"), "  available, held")


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Give the members of objects as fields of their own."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": each for inner, each in _flat(value).items()}
        else:
            flat[name] = value
    return flat


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _is_told(rows: Sequence[Mapping[str, Any]], column: str) -> bool:
    return any(row.get(column) not in (None, [], "") for row in rows)


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)


def plain(value: Any) -> str:
    """Show a value as text that cannot control a terminal."""
    if value is None or value == []:
        return _NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    return _harmless(str(value))


def _text(value: str, style: str = "") -> Text:
    return Text(value, style=style)


def plain_text(value: str) -> str:
    """Show text of several lines as text that cannot control a terminal."""
    return "".join(each if each in "\n\t" else _harmless(each) for each in value)


def _harmless(value: str) -> str:
    return "".join("\ufffd" if unicodedata.category(each) in ("Cc", "Cf") else each for each in value)
