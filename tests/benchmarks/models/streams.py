"""Rows about streams: the first token, chunks sent at once and paced chunks, and the memory of 200 streams."""

# The multiplication sign is intended.
# ruff: noqa: RUF001

import threading
from collections.abc import Iterator, Mapping

from tests.benchmarks.models.clients import Timings, run_streams
from tests.benchmarks.models.gateways import (
    LONG,
    PACE_SECONDS,
    PACED,
    PACED_CHUNKS,
    PLAIN,
    SLOW,
    Gateway,
    Gateways,
    long_chunks,
)
from tests.benchmarks.runner.measurements import Sample, percentile
from tests.benchmarks.runner.product import Bench
from tests.benchmarks.runner.report import Line, milliseconds

STREAMS = 16
MANY_STREAMS = 200
MEBIBYTE = 1 << 20
_MISSING = "yardstick missing: LiteLLM"
Found = Mapping[str, tuple[Sample, Timings]]


def streams(bench: Bench, through: Gateways) -> Iterator[Line]:
    """Read streams one at a time, then sixteen at a time."""
    alone = {each.name: _stream(each, PLAIN, callers=1, count=bench.scaled(100, 30)) for each in through.all}
    yield _first_token("first token, one stream: added p50", alone, hundredths=50, most_seconds=0.006)
    paced = {
        each.name: _stream(each, PACED, callers=STREAMS, count=bench.scaled(3, 1) * STREAMS)
        for each in through.all
    }
    yield _first_token(
        f"first token, {STREAMS} paced streams: added p95",
        paced,
        hundredths=95,
        most_seconds=0.030,
        less=PACE_SECONDS,
    )
    count = bench.scaled(4, 1) * STREAMS
    long = {
        each.name: _stream(each, LONG, callers=STREAMS, count=STREAMS if each is through.litellm else count)
        for each in through.all
    }
    yield _first_token(
        f"first token, {STREAMS} streams of chunks all at once: added p95",
        long,
        hundredths=95,
        most_seconds=None,
    )
    yield from _chunks(bench, long, {"ours": count, "LiteLLM": STREAMS})
    yield from _paced(paced, bench.scaled(3, 1) * STREAMS * PACED_CHUNKS)


def memory(bench: Bench, through: Gateways) -> Iterator[Line]:
    """Keep many streams open at once, and measure the memory of the processes that serve them."""
    for gateway, part in ((through.ours, "web"), (through.ours, "worker"), (through.litellm, "proxy")):
        if gateway is None or (bench.quick and gateway is through.litellm):
            continue
        before = gateway.largest_process_bytes(part)
        peak = _peak_during_streams(gateway, part)
        is_ours = gateway is through.ours
        yield Line(
            what=f"memory at {MANY_STREAMS} streams: {part if is_ours else gateway.name}",
            figure=f"{peak / MEBIBYTE:.0f} MiB (before {before / MEBIBYTE:.0f})",
            target="≤ 150 MB" if is_ours else "",
            met=peak <= 150_000_000 if is_ours else None,
        )


def _stream(gateway: Gateway, model: str, *, callers: int, count: int) -> tuple[Sample, Timings]:
    port, request = gateway.request(model, is_stream=True)
    found: list[Timings] = []

    def run() -> float:
        found.append(run_streams(port, request, callers=callers, count=count))
        return found[0].seconds

    return gateway.meter().run(run), found[0]


def _first_token(
    what: str, found: Found, *, hundredths: int, most_seconds: float | None, less: float = 0.0
) -> Line:
    """Compare with the direct call's. `less` is the upstream's own delay."""
    direct = percentile(found["direct"][1].first_tokens, hundredths)
    added = {name: percentile(taken[1].first_tokens, hundredths) - direct for name, taken in found.items()}
    return Line(
        what=what,
        figure=f"+ {milliseconds(added['ours'])}",
        yardstick=f"LiteLLM + {milliseconds(added['LiteLLM'])}; direct {milliseconds(direct - less)}"
        if "LiteLLM" in added
        else _MISSING,
        ratio=added["ours"] / added["LiteLLM"] if "LiteLLM" in added else None,
        target=f"≤ {most_seconds * 1000:g} ms" if most_seconds else "",
        met=added["ours"] <= most_seconds if most_seconds else None,
    )


def _chunks(bench: Bench, found: Found, counts: Mapping[str, int]) -> Iterator[Line]:
    chunks = {name: count * long_chunks(bench) for name, count in counts.items() if name in found}
    cpu = {name: found[name][0].cpu_seconds * 1000 / count for name, count in chunks.items()}
    rates = {name: count / found[name][0].seconds for name, count in chunks.items()}
    ratio = rates["ours"] / rates["LiteLLM"] if "LiteLLM" in rates else None
    yield Line(
        what=f"chunks all at once, {STREAMS} streams of {long_chunks(bench)}",
        figure=f"{rates['ours']:.0f}/s",
        yardstick=f"LiteLLM {rates['LiteLLM']:.0f}/s" if "LiteLLM" in rates else _MISSING,
        ratio=ratio,
        target="≥ 10 ×",
        met=None if ratio is None else ratio >= 10,
    )
    yield _cpu_per_chunk("CPU per chunk, all at once", cpu, 0.1, found["ours"][0], chunks["ours"])


def _paced(found: Found, chunks: int) -> Iterator[Line]:
    cpu = {name: taken[0].cpu_seconds * 1000 / chunks for name, taken in found.items() if name != "direct"}
    every = f"every {PACE_SECONDS * 1000:.0f} ms"
    yield _cpu_per_chunk(f"CPU per chunk, {every}, {STREAMS} streams", cpu, 0.25, found["ours"][0], chunks)
    late = {name: percentile(taken[1].late, 95) for name, taken in found.items()}
    yield Line(
        what=f"lateness of a chunk {every}, {STREAMS} streams: p95",
        figure=milliseconds(late["ours"]),
        yardstick=(f"LiteLLM {milliseconds(late['LiteLLM'])}; " if "LiteLLM" in late else f"{_MISSING}; ")
        + f"direct {milliseconds(late['direct'])}",
        ratio=late["ours"] / late["LiteLLM"] if "LiteLLM" in late else None,
        target="≤ 15 ms",
        met=late["ours"] <= 0.015,
    )


def _cpu_per_chunk(what: str, cpu: Mapping[str, float], most: float, sample: Sample, chunks: int) -> Line:
    parts = ", ".join(f"{part} {s * 1000 / chunks:.3f}" for part, s in sorted(sample.cpu_by_part.items()))
    return Line(
        what=what,
        figure=f"{cpu['ours']:.3f} ms",
        yardstick=f"LiteLLM {cpu['LiteLLM']:.3f} ms" if "LiteLLM" in cpu else _MISSING,
        ratio=cpu["ours"] / cpu["LiteLLM"] if "LiteLLM" in cpu else None,
        target=f"≤ {most:g} ms",
        met=cpu["ours"] <= most,
        cpu=parts,
    )


def _peak_during_streams(gateway: Gateway, part: str) -> int:
    peak = 0
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.25):
            peak = max(peak, gateway.largest_process_bytes(part))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        _stream(gateway, SLOW, callers=MANY_STREAMS, count=MANY_STREAMS)
    finally:
        ended.set()
        watcher.join()
    return peak
