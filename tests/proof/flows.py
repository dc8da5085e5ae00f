"""What a flow is: steps that a client or the schedule repeats until they are done, and what must then be so.

A row of `FLOWS` is all that a new flow needs: it is run with the answer of each of its commits lost in turn, and with
every other actor stepping in at each of its failpoints.
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
"""Points at which a flow has taken no step since its commit, which has a point of its own."""
UNSEEN = NO_STEP | {"upload.begun", "upload.opened", "upload.received"}
"""Points at which nothing has changed yet that others could see or lock."""
State = dict[str, Any]
ran: set[str] = set()
"""The names of the flows that have run in this process."""
Step = Callable[[World, State], object]


@dataclass(frozen=True, kw_only=True)
class Actor:
    """Somebody else, and what they do: a whole operation, over connections of their own."""

    name: str
    act: Callable[[World, State], object]
    ends_agent: bool = False
    """Whether the agent at work can do nothing afterwards, and so has to be one that nobody else needs."""


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Something that has one effect, however often its steps are repeated.

    `prepare` makes what it needs. A step gives the answer that its client reads, or raises: an answer of 500 or above,
    and `ServiceUnavailable`, have the client repeat the step. `sweeps` are the jobs that the schedule runs meanwhile.
    `require` fails unless the promise is kept. `visitors` step in between, and then `agree` fails unless what each side
    was told is so.
    """

    name: str
    prepare: Callable[[World], State]
    steps: Sequence[Step]
    require: Callable[[World, State], None]
    sweeps: Sequence[str] = ()
    records: bool = field(default=False)
    """Whether the store is one whose uploads are recorded before they begin, as on S3."""
    visitors: Sequence[Actor] = ()
    passes: Collection[str] = NO_STEP
    """The points at which nobody need step in."""
    agree: Callable[[World, State], None] | None = None


def run(world: World, flow: Flow, lost: Commit | None = None, *, times: int = 1) -> Journal:
    """Run a flow, with the answer of one commit lost, and check its promise; `times` repeats it all, as by a client.

    The journal has the commits of the first time.
    """
    ran.add(flow.name)
    with world.recording_uploads(flow.records):
        state = flow.prepare(world)
        with watched(lost) as journal:
            _take_steps(world, flow, state)
        for _ in range(times - 1):
            _take_steps(world, flow, state)
        if lost is not None:
            world.let_leases_end()
        world.run(flow.sweeps)
        flow.require(world, state)
    return journal


def _take_steps(world: World, flow: Flow, state: State) -> None:
    for step in flow.steps:
        _repeat(world, flow, state, step)


def points_of(world: World, flow: Flow) -> list[str]:
    """List the failpoints that a flow reaches."""
    with world.recording_uploads(flow.records):
        state = flow.prepare(world)
        with noting_points() as points:
            _take_steps(world, flow, state)
    return [point for point in points if point not in flow.passes]


def run_visited(world: World, flow: Flow, actor: Actor, point: str) -> None:
    """Run a flow with somebody else acting at a point, and check what both were told."""
    assert flow.agree is not None
    world = world.with_newcomer() if actor.ends_agent else world
    with world.recording_uploads(flow.records):
        state = flow.prepare(world)
        with visiting(world, point, lambda: actor.act(world, state)) as visit:
            _take_steps(world, flow, state)
        assert visit.end(), "the flow reaches the point again"
        state["waited"] = visit.waited
        flow.agree(world, state)


def _repeat(world: World, flow: Flow, state: State, step: Step) -> None:
    """Take a step until it is answered; between two attempts time passes, and the schedule runs."""
    for _ in range(ATTEMPTS):
        try:
            answer = step(world, state)
        except ServiceUnavailable as error:
            said = error.detail
        else:
            if not isinstance(answer, TestResponse) or answer.status_code < 500:
                return
            said = answer.text
        world.let_leases_end()
        world.run(flow.sweeps)
    raise AssertionError(f"{flow.name}: a step was never answered: {said}")
