"""A flow: steps that a client or a schedule repeats until they succeed, and the conditions that must hold afterwards.

Add a row to `FLOWS` for a new flow. It runs with the response of each of its commits lost in turn, and with every
other actor at each of its failpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from werkzeug.test import TestResponse

from shared.errors import ServiceUnavailable
from tests.proof.commits import Commit, Journal, watched
from tests.proof.interleaving import noting_points, visiting
from tests.proof.world import World

ATTEMPTS = 4
NO_STEP = frozenset({"jobs.before_publish"})
"""Failpoints at which a flow has done nothing since its last commit, which has a failpoint of its own."""
UNSEEN = NO_STEP | {"upload.begun", "upload.opened", "upload.received"}
"""Failpoints before any change that others could see or lock."""
State = dict[str, Any]
ran: set[str] = set()
"""The names of the flows that have run in this process."""
Step = Callable[[World, State], object]


@dataclass(frozen=True, kw_only=True)
class Actor:
    """Another actor: a whole operation, over connections of its own."""

    name: str
    act: Callable[[World, State], object]
    ends_agent: bool = False
    """Whether the flow's agent has no permission afterwards. Then the flow gets an agent of its own."""


@dataclass(frozen=True, kw_only=True)
class Flow:
    """An operation with one effect, however often its steps are repeated.

    `prepare` creates what it needs. A step returns the response that its client reads, or raises. The client repeats
    the step after a response of 500 or above and after `ServiceUnavailable`. `sweeps` are the periodic jobs that run
    meanwhile. `require` fails unless the effect is exactly one. `visitors` act between the steps; `agree` then fails
    unless every response is true.
    """

    name: str
    prepare: Callable[[World], State]
    steps: Sequence[Step]
    require: Callable[[World, State], None]
    sweeps: Sequence[str] = ()
    records: bool = field(default=False)
    """Whether the store records uploads before they begin, as S3 does."""
    visitors: Sequence[Actor] = ()
    passes: Collection[str] = NO_STEP
    """The failpoints that visitors skip."""
    agree: Callable[[World, State], None] | None = None


def run(world: World, flow: Flow, lost: Commit | None = None, *, times: int = 1) -> Journal:
    """Run a flow, lose the response of one commit, and check the effect. `times` repeats all steps, as a client may.

    The journal has the commits of the first run.
    """
    ran.add(flow.name)
    with world.recording_uploads(flow.records):
        state = flow.prepare(world)
        with watched(lost) as journal:
            _take_steps(world, flow, state)
        for _ in range(times - 1):
            _take_steps(world, flow, state)
        if lost is not None:
            world.expire_leases()
        world.run(flow.sweeps)
        flow.require(world, state)
    return journal


def _take_steps(world: World, flow: Flow, state: State) -> None:
    for step in flow.steps:
        _repeat(world, flow, state, step)


def list_failpoints(world: World, flow: Flow) -> list[str]:
    """List the failpoints that a flow reaches."""
    with world.recording_uploads(flow.records):
        state = flow.prepare(world)
        with noting_points() as points:
            _take_steps(world, flow, state)
    return [point for point in points if point not in flow.passes]


def run_visited(world: World, flow: Flow, actor: Actor, point: str) -> None:
    """Run a flow with another actor at a failpoint, and check the responses of both."""
    assert flow.agree is not None
    world = world.with_own_agent() if actor.ends_agent else world
    with world.recording_uploads(flow.records):
        state = flow.prepare(world)
        with visiting(world, point, lambda: actor.act(world, state)) as visit:
            _take_steps(world, flow, state)
        assert visit.end(), "the flow reaches the point again"
        state["waited"] = visit.waited
        flow.agree(world, state)


def _repeat(world: World, flow: Flow, state: State, step: Step) -> None:
    """Repeat a step until it succeeds. Between attempts, leases expire and the sweeps run."""
    for _ in range(ATTEMPTS):
        try:
            answer = step(world, state)
        except ServiceUnavailable as error:
            said = error.detail
        else:
            if not isinstance(answer, TestResponse) or answer.status_code < 500:
                return
            said = answer.text
        world.expire_leases()
        world.run(flow.sweeps)
    raise AssertionError(f"{flow.name}: a step was never answered: {said}")
