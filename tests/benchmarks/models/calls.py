"""Rows about models: whole replies and streams, compared with LiteLLM and the bare upstream.

The upstreams reply without delay, so the rows measure what a gateway adds. The product holds, dispatches and settles
credits durably for every call and sends it through the queue. LiteLLM, here without a database, only forwards.
"""

# The multiplication sign is intended.
# ruff: noqa: RUF001

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.benchmarks.models.clients import Timings, run_calls
from tests.benchmarks.models.gateways import PLAIN, TIMED, TIMED_CHUNKS, Gateway, Gateways, gateways
from tests.benchmarks.models.streams import memory, streams
from tests.benchmarks.runner.measurements import Sample, median, percentile
from tests.benchmarks.runner.product import Bench
from tests.benchmarks.runner.report import Line, at_least, cpu_per, milliseconds

LITELLM = "LiteLLM (without a database: no keys, budgets or spend; one process)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One gateway's runs with this many callers: medians of the rates and the CPU, and all calls' times."""

    count: int
    sample: Sample
    calls: Sequence[float]

    @property
    def rate(self) -> float:
        return self.count / self.sample.seconds

    @property
    def cpu_milliseconds(self) -> float:
        return self.sample.cpu_seconds * 1000 / self.count


def models(bench: Bench) -> Iterator[Line]:
    """Measure all rows about model calls."""
    with gateways(bench, "models") as through:
        for gateway in through.all:
            _call(gateway, callers=32, count=bench.scaled(400, 100) if gateway is through.ours else 64)
        yield from _whole_answers(bench, through)
        yield _timed_answers(bench, through)
        yield from streams(bench, through)
        yield from memory(bench, through)


def _whole_answers(bench: Bench, through: Gateways) -> Iterator[Line]:
    alone = _interleaved(bench, through, callers=1, counts=(bench.scaled(300, 80), bench.scaled(100, 30)))
    yield _added_latency(through, alone)
    for callers in (16, 64):
        counts = (bench.scaled(1500, 200), bench.scaled(200, 64))
        taken = _interleaved(bench, through, callers=callers, counts=counts)
        if callers == 16:
            yield from _cpu(taken)
        yield from _rates(taken, callers)


def _interleaved(
    bench: Bench, through: Gateways, *, callers: int, counts: tuple[int, int]
) -> dict[str, Taken]:
    """Measure the gateways in turn. The numbers of calls differ, because LiteLLM is slower."""
    runs: dict[str, list[tuple[Sample, Timings]]] = {gateway.name: [] for gateway in through.all}
    count = {gateway.name: counts[0] for gateway in through.all} | {"LiteLLM": counts[1]}
    for _ in range(bench.scaled(3, 1)):
        for gateway in through.all:
            runs[gateway.name].append(_call(gateway, callers=callers, count=count[gateway.name]))
    return {
        name: Taken(
            count=count[name],
            sample=median([sample for sample, _ in taken]),
            calls=[seconds for _, timings in taken for seconds in timings.calls],
        )
        for name, taken in runs.items()
    }


def _timed_answers(bench: Bench, through: Gateways) -> Line:
    """Request whole replies that take their time. The idle CPU of every process counts too."""
    callers, count = 16, 16 * bench.scaled(6, 3)
    for gateway in through.all:
        _call(gateway, callers=callers, count=callers, model=TIMED)  # So that connections are open.
    taken = {
        gateway.name: _call(gateway, callers=callers, count=count, model=TIMED)[0]
        for gateway in (through.ours, through.litellm)
        if gateway is not None
    }
    cpu = {name: sample.cpu_seconds * 1000 / count for name, sample in taken.items()}
    ours, theirs = cpu["ours"], cpu.get("LiteLLM")
    return Line(
        what=f"CPU per whole answer of {TIMED_CHUNKS} tokens over 2 s, {callers} callers",
        figure=f"{ours:.2f} ms",
        yardstick=f"LiteLLM {theirs:.2f} ms" if theirs else "yardstick missing: LiteLLM",
        ratio=ours / theirs if theirs else None,
        target="≤ 6 ms, ≤ 0.25 ×",
        met=ours <= 6 and (theirs is None or ours <= theirs / 4),
        cpu=cpu_per(taken["ours"], count, "call"),
    )


def _call(gateway: Gateway, *, callers: int, count: int, model: str = PLAIN) -> tuple[Sample, Timings]:
    port, request = gateway.request(model)
    found: list[Timings] = []

    def run() -> float:
        found.append(run_calls(port, request, callers=callers, count=count))
        return found[0].seconds

    return gateway.meter().run(run), found[0]


def _added_latency(through: Gateways, taken: dict[str, Taken]) -> Line:
    direct, ours = taken["direct"].calls, taken["ours"].calls
    p50, p99 = (percentile(ours, at) - percentile(direct, at) for at in (50, 99))
    yardstick = "yardstick missing: LiteLLM"
    if "LiteLLM" in taken:
        theirs = taken["LiteLLM"].calls
        added = [percentile(theirs, at) - percentile(direct, at) for at in (50, 99)]
        yardstick = f"{LITELLM} + {milliseconds(added[0])}, + {milliseconds(added[1])}"
    return Line(
        what="whole answer, one caller: added p50, p99",
        figure=f"+ {milliseconds(p50)}, + {milliseconds(p99)}",
        yardstick=f"{yardstick}; direct {milliseconds(percentile(direct, 50))}",
        target="p50 ≤ 6 ms, p99 ≤ 20 ms",
        met=p50 <= 0.006 and p99 <= 0.020,
        cpu=cpu_per(taken["ours"].sample, taken["ours"].count, "call"),
    )


def _cpu(taken: dict[str, Taken]) -> Iterator[Line]:
    ours, theirs = taken["ours"], taken.get("LiteLLM")
    yield Line(
        what="CPU per whole answer, 16 callers",
        figure=f"{ours.cpu_milliseconds:.2f} ms",
        yardstick=f"LiteLLM {theirs.cpu_milliseconds:.2f} ms" if theirs else "yardstick missing: LiteLLM",
        ratio=ours.cpu_milliseconds / theirs.cpu_milliseconds if theirs else None,
        target="≤ 4 ms",
        met=ours.cpu_milliseconds <= 4,
        cpu=cpu_per(ours.sample, ours.count, "call"),
    )


def _rates(taken: dict[str, Taken], callers: int) -> Iterator[Line]:
    ours, theirs = taken["ours"], taken.get("LiteLLM")
    p99 = percentile(ours.calls, 99)
    figure = f"{ours.rate:.0f}/s"
    if theirs is None:
        yield Line(
            what=f"whole answers, {callers} callers", figure=figure, yardstick="yardstick missing: LiteLLM"
        )
        return
    yield at_least(
        f"whole answers, {callers} callers",
        figure,
        f"LiteLLM {theirs.rate:.0f}/s; direct {taken['direct'].rate:.0f}/s",
        ratio=ours.rate / theirs.rate,
        minimum=5,
    )
    their_p99 = percentile(theirs.calls, 99)
    yield Line(
        what=f"p99, {callers} callers",
        figure=milliseconds(p99),
        yardstick=f"LiteLLM {milliseconds(their_p99)}",
        ratio=p99 / their_p99,
        target="≤ 0.2 ×",
        met=p99 <= their_p99 / 5,
    )
