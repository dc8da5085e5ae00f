"""Rows about many model calls: hundreds of simultaneous first calls, and the memory that many calls leave.

The crowd uses the official asynchronous client, with a connection for each call and without retries. The product has
not seen the crowd's key before; LiteLLM, without a database, has only one key. If each call has a new key, all calls
are anonymous clients of one address until their keys are known, and share that address's slots.
"""

import asyncio
import dataclasses
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import openai
from openai.types.chat import ChatCompletionMessageParam

from tests.benchmarks.models.clients import run_calls
from tests.benchmarks.models.gateways import PLAIN, Gateway, Gateways, gateways
from tests.benchmarks.runner.measurements import percentile
from tests.benchmarks.runner.product import Bench
from tests.benchmarks.runner.report import Line, flat, milliseconds
from tests.benchmarks.usage_inventory import add_key_holders

CROWD = 400
CALLERS = 16
ORGANIZATIONS = 10
PATIENCE_SECONDS = 300.0
PARTS = ("web", "worker")
MOST_BYTES = 150_000_000
MOST_GROWTH = 1.1
MEBIBYTE = 1 << 20
_MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "Which of the planets has the most moons?"}
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """The results of a crowd's calls: the seconds of each successful call, and the number of failed ones."""

    seconds: Sequence[float]
    refused: int

    @property
    def p99(self) -> float:
        return percentile(self.seconds, 99) if self.seconds else float("inf")


def crowds(bench: Bench) -> Iterator[Line]:
    """Run the crowd, measure the processes' memory, and then run a long series of calls."""
    with gateways(bench, "crowds") as through:
        for gateway in through.all:
            port, request = gateway.request(PLAIN)
            run_calls(port, request, callers=CALLERS, count=4 * CALLERS)
        yield from _first_calls(bench, through)
        yield from _memory_after(through.ours)
        yield from _flat_memory(bench, through)


def _first_calls(bench: Bench, through: Gateways) -> Iterator[Line]:
    taken: dict[str, list[Crowd]] = {gateway.name: [] for gateway in through.all}
    strangers = []
    for _ in range(bench.scaled(3, 1)):
        for gateway in through.all:
            keys = _new_keys(through, 1) if gateway is through.ours else [gateway.key]
            taken[gateway.name].append(asyncio.run(_come(gateway, keys * CROWD)))
        strangers.append(asyncio.run(_come(through.ours, _new_keys(through, CROWD))))
    shown = {name: _shown(crowds) for name, crowds in taken.items()}
    ratio = _p99(taken["ours"]) / _p99(taken["LiteLLM"]) if "LiteLLM" in taken else None
    is_quick_enough = None if ratio is None else ratio <= 0.2
    yield Line(
        what=f"{CROWD} first calls at once, official async client, a new key",
        figure=shown["ours"],
        yardstick=f"LiteLLM {shown.get('LiteLLM', 'missing')}; direct {shown['direct']}",
        ratio=ratio,
        target="none refused, ≤ 0.2 ×",  # noqa: RUF001
        met=False if _refused(taken["ours"]) else is_quick_enough,
    )
    yield Line(
        what="the same, each call with a new key of its own, from one address", figure=_shown(strangers)
    )


def _p99(crowds: Sequence[Crowd]) -> float:
    return statistics.median(crowd.p99 for crowd in crowds)


def _refused(crowds: Sequence[Crowd]) -> int:
    return sum(crowd.refused for crowd in crowds)


def _shown(crowds: Sequence[Crowd]) -> str:
    return f"p99 {milliseconds(_p99(crowds))}, {_refused(crowds)} refused"


async def _come(gateway: Gateway, keys: Sequence[str]) -> Crowd:
    model = gateway.renamed.get(PLAIN, PLAIN)
    address = f"http://127.0.0.1:{gateway.ports[PLAIN]}/v1"
    async with openai.AsyncOpenAI(
        base_url=address, api_key=gateway.key, max_retries=0, timeout=PATIENCE_SECONDS
    ) as client:

        async def call(key: str) -> float | None:
            began_at = time.perf_counter()
            try:
                await client.with_options(api_key=key).chat.completions.create(
                    model=model, messages=_MESSAGES
                )
            except openai.APIError:
                return None
            return time.perf_counter() - began_at

        taken = await asyncio.gather(*map(call, keys))
    answered = [seconds for seconds in taken if seconds is not None]
    return Crowd(seconds=answered, refused=len(taken) - len(answered))


def _memory_after(ours: Gateway) -> Iterator[Line]:
    for part in PARTS:
        size = ours.largest_process_bytes(part)
        yield Line(
            what=f"memory after that: {part}",
            figure=f"{size / MEBIBYTE:.0f} MiB",
            target=f"≤ {MOST_BYTES / 1_000_000:.0f} MB",
            met=size <= MOST_BYTES,
        )


def _flat_memory(bench: Bench, through: Gateways) -> Iterator[Line]:
    """Compare the memory after a tenth of the calls with that after all of them."""
    share = bench.scaled(100_000, 3_000) // ORGANIZATIONS
    seen: list[dict[str, int]] = []
    for key in _new_keys(through, ORGANIZATIONS, organizations=ORGANIZATIONS):
        port, request = dataclasses.replace(through.ours, key=key).request(PLAIN)
        run_calls(port, request, callers=CALLERS, count=share)
        seen.append({part: through.ours.largest_process_bytes(part) for part in PARTS})
    for part in PARTS:
        first, last = seen[0][part], seen[-1][part]
        yield flat(
            f"memory after {share * ORGANIZATIONS} calls: {part}",
            f"{last / MEBIBYTE:.0f} MiB",
            f"after {share}: {first / MEBIBYTE:.0f} MiB",
            ratio=last / first,
            maximum=MOST_GROWTH,
        )


def _new_keys(through: Gateways, count: int, *, organizations: int = 1) -> list[str]:
    _, _, keys = add_key_holders(through.stack.administrator_url, count, organizations=organizations)
    return [key.value for key in keys]
