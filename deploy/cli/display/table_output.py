"""Print documents as tables at a terminal.

Control characters in values are replaced. Values may come from other users, and a control character could move the
cursor or change colours.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

BAR_CELLS = 20
_EMPTY = "-"
_SPARKS = " ▁▂▃▄▅▆▇█"


def render(shown: Mapping[str, Any], console: Console) -> None:
    """Print a document. Print each field as name and value, and each list of objects as a table."""
    lists = {name: value for name, value in shown.items() if _is_list_of_objects(value)}
    cursor = shown.get("nextCursor")
    fields = {name: value for name, value in shown.items() if name not in lists and name != "nextCursor"}
    if fields:
        console.print(_fields(fields))
    if {"balance", "held"} <= fields.keys():
        console.print(_meter(float(fields["balance"]), float(fields["held"])))
    for name, rows in lists.items():
        _render_rows(name, [_flatten(row) for row in rows], console)
        if len(steps := _costs_by_step(rows)) > 1:
            console.print(_styled(f"cost  {sparkline(steps)}", style="green"))
    if cursor is not None:
        console.print(_styled(f"More: --cursor {cursor}", style="dim"))
    if not fields and not lists:
        console.print(_styled("Done.", style="green"))


def _render_rows(name: str, rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    if not rows:
        console.print(_styled(f"No {name}.", style="dim"))
        return
    # Rows may have different members, so collect the names of all rows in order of first occurrence. Omit columns
    # without a value, to keep the table narrow.
    columns = [name for name in dict.fromkeys(key for row in rows for key in row) if _has_values(rows, name)]
    width = sum(max(len(column), *(len(plain(row.get(column))) for row in rows)) + 2 for column in columns)
    # If the table is wider than the terminal, its columns would be cut off: print each row as a list of fields.
    if width > console.width:
        for row in rows:
            console.print(_fields({column: row.get(column) for column in columns}))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    bars = _bars(rows)
    for column in columns:
        is_amount = all(_is_number(row.get(column)) for row in rows)
        # Set no_wrap, because a user cannot copy an id that is broken over two lines.
        table.add_column(_styled(column), justify="right" if is_amount else "left", no_wrap=True)
    if bars:
        table.add_column("")
    for place, row in enumerate(rows):
        table.add_row(*(_styled(plain(row.get(column))) for column in columns), *bars[place : place + 1])
    console.print(table)


def _fields(fields: Mapping[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, value in _flatten(fields).items():
        grid.add_row(_styled(name, style="bold"), _styled(plain(value)))
    grid.add_row("", "")
    return grid


def _bars(rows: Sequence[Mapping[str, Any]]) -> list[Text]:
    """Return a bar for each row's cost, relative to the highest cost. Return an empty list if rows have no costs."""
    costs = [float(row["cost"]) for row in rows if _is_number(row.get("cost"))]
    if len(rows) <= 1 or len(costs) != len(rows) or max(costs) <= 0:
        return []
    return [_styled("█" * round(BAR_CELLS * max(cost, 0) / max(costs)), style="green") for cost in costs]


def sparkline(values: Sequence[float]) -> str:
    """Return a line of block characters that shows the values, scaled to the highest value."""
    top = max(values)
    return "".join(
        _SPARKS[round((len(_SPARKS) - 1) * max(value, 0) / top)] if top > 0 else " " for value in values
    )


def _costs_by_step(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the total cost of each hour or day of a time series, oldest first."""
    costs: dict[str, float] = {}
    for row in rows:
        if row.get("startsAt") and _is_number(row.get("cost")):
            costs[row["startsAt"]] = costs.get(row["startsAt"], 0.0) + float(row["cost"])
    return [costs[step] for step in sorted(costs)]


def _meter(balance: float, held: float) -> Text:
    """Return a bar that shows the available credits and the held credits of a balance."""
    cells = round(BAR_CELLS * min(max(held / balance, 0), 1)) if balance > 0 else BAR_CELLS
    return Text.assemble(("█" * (BAR_CELLS - cells), "green"), ("░" * cells, "yellow"), "  available, held")


def _flatten(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields. Members of nested objects get dotted names, such as `owner.kind`."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": each for inner, each in _flatten(value).items()}
        else:
            flat[name] = value
    return flat


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _has_values(rows: Sequence[Mapping[str, Any]], column: str) -> bool:
    return any(row.get(column) not in (None, [], "") for row in rows)


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    # Exclude booleans: float(True) is 1.0, but a boolean is not a number in a table.
    return not isinstance(value, bool)


def plain(value: Any) -> str:
    """Return a value as text without control characters."""
    if value is None or value == []:
        return _EMPTY
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    return _replace_controls(str(value))


def _styled(value: str, style: str = "") -> Text:
    return Text(value, style=style)


def plain_text(value: str) -> str:
    """Return text without control characters other than newline and tab."""
    return "".join(each if each in "\n\t" else _replace_controls(each) for each in value)


def _replace_controls(value: str) -> str:
    # Replace the category Cf too: its characters have no width and can reverse the direction of nearby text.
    return "".join("\ufffd" if unicodedata.category(each) in ("Cc", "Cf") else each for each in value)
