"""What Prometheus would scrape from the service, and the series that its expressions select."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import promql_parser
import requests
from prometheus_client.parser import text_string_to_metric_families

MADE_BY_PROMETHEUS = {"up": {"job", "instance"}}
"""Series that it makes itself, with their labels."""
_WORDS = re.compile(r"[\w|-]+")
_VARIABLES = {"$__rate_interval": "5m"}

Series = dict[str, list[Mapping[str, str]]]


def scrape(addresses: Sequence[str]) -> Series:
    """Return every series of these targets as labels, by metric name."""
    found: Series = {}
    for address in addresses:
        answer = requests.get(f"{address}/metrics", timeout=60)
        assert answer.status_code == 200, answer.text
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample.labels)
    return found


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric that an expression selects; its labels must have the values in `equal`."""

    metric: str
    labels: frozenset[str]
    equal: Mapping[str, str]

    def is_found_in(self, series: Series) -> bool:
        """Return whether a scrape has a series with those labels and values."""
        if self.metric in MADE_BY_PROMETHEUS:
            return self.labels <= MADE_BY_PROMETHEUS[self.metric]
        return any(
            self.labels <= labels.keys() and all(labels[name] == value for name, value in self.equal.items())
            for labels in series.get(self.metric, ())
        )


def read_expression(expression: str) -> Iterator[Selector]:
    """Parse an expression; yield its selectors, each with the labels of the grouping around it."""
    for variable, value in _VARIABLES.items():
        expression = expression.replace(variable, value)
    yield from _selectors(promql_parser.parse(expression), frozenset())


def _selectors(node: Any, grouped_by: frozenset[str]) -> Iterator[Selector]:
    if isinstance(node, promql_parser.VectorSelector):
        yield from _alternatives(node, grouped_by)
    elif isinstance(node, promql_parser.MatrixSelector):
        yield from _alternatives(node.vector_selector, grouped_by)
    elif isinstance(node, promql_parser.BinaryExpr):
        for side in (node.lhs, node.rhs):
            yield from _selectors(side, grouped_by)
    elif isinstance(node, promql_parser.AggregateExpr):
        yield from _selectors(node.expr, frozenset(node.modifier.labels) if node.modifier else frozenset())
    elif isinstance(node, promql_parser.Call):
        for argument in node.args:
            yield from _selectors(argument, grouped_by)
    elif isinstance(node, promql_parser.ParenExpr | promql_parser.SubqueryExpr | promql_parser.UnaryExpr):
        yield from _selectors(node.expr, grouped_by)
    else:
        assert isinstance(node, promql_parser.NumberLiteral | promql_parser.StringLiteral), type(node)


def _alternatives(node: Any, grouped_by: frozenset[str]) -> Iterator[Selector]:
    """Yield a selector for each value that the matchers name: `state=~"a|b"` names two."""
    named: dict[str, list[str]] = {}
    for matcher in node.matchers.matchers:
        is_equal = matcher.op == promql_parser.MatchOp.Equal
        if is_equal or (matcher.op == promql_parser.MatchOp.Re and _WORDS.fullmatch(matcher.value)):
            named[matcher.name] = matcher.value.split("|")
    labels = grouped_by | {matcher.name for matcher in node.matchers.matchers}
    for values in itertools.product(*named.values()):
        yield Selector(node.name, labels, dict(zip(named, values, strict=True)))
