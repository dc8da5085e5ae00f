"""Flows of credits: model calls from the hold to the charge, sweeps of lost calls, ledger entries and budgets."""

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from uuid import UUID, uuid4

from werkzeug.test import TestResponse

from shared.credits import holds
from shared.messaging.replies import Reply, ReplyKind
from shared.models.invocations import give_up
from tests.proof import actors
from tests.proof.file_flows import job
from tests.proof.flows import Flow, State
from tests.proof.world import World
from tests.shared.credits.calls import GIB, Calls
from tests.shared.models.model_calls import data_of, received
from tests.support.files.file_requests import succeed

LEDGER = ("credits.release_overdue_holds", "credits.settle_unresolved")
TOKENS = "!tokens 9"
COST = 2 + 9 * 2
_DAYS = count()
CALL_VISITORS = (actors.GIVE_UP_CALL, actors.CANCEL_CALL, actors.DO_AGAIN, actors.RECOVER)


def _unasked(world: World) -> State:
    return {"balance": world.calls.balance.balance, "called": [], "replies": []}


def _call(stream: bool, world: World, state: State) -> None:
    """Make a call as a client does, and read its reply if the call was settled."""
    inbox = world.calls.chat(TOKENS, stream=stream)
    state["called"].append(inbox.address.invocation_id)
    world.calls.execute(inbox)
    if _state_of(world, inbox.address.invocation_id) == "settled":
        state["replies"].append(received(inbox))
    inbox.close()


def _require_told(replies: list[Reply]) -> None:
    assert replies[-1].kind is ReplyKind.END
    assert "word8" in data_of(replies)
    assert '"finish_reason":"stop"' in data_of(replies)


def _require_one_charge_a_call(world: World, state: State) -> None:
    """Check that each accepted call was sent, replied and charged once, and that the client has to repair nothing."""
    called = state["called"]
    assert [at for at in world.asked if UUID(at) in called] == [*map(str, called)], "each is made once"
    for replies in state["replies"]:
        _require_told(replies)
    assert [_costs(world, at) for at in called] == [[COST]] * len(called)
    assert len(state["replies"]) == len(called)
    assert world.calls.balance.balance == state["balance"] - COST * len(called), (
        "and nothing else was charged"
    )
    _require_nothing_held(world)


def _costs(world: World, invocation_id: UUID) -> list[int]:
    found = world.sql("SELECT cost FROM usage_records WHERE invocation_id = %(id)s", id=invocation_id)
    return [row[0] for row in found]


def _agree(world: World, state: State) -> None:
    """Check that a call is sent at most once, a delivered reply is charged exactly, and an unsent call is free."""
    spent = 0
    for called in state["called"]:
        asked, costs = world.asked.count(str(called)), _costs(world, called)
        assert asked <= 1, "a call is made once"
        assert len(costs) == (_state_of(world, called) == "settled")
        assert asked or not sum(costs), "nothing is charged for what was not asked"
        spent += sum(costs)
    for replies in state["replies"]:
        if replies[-1].kind is ReplyKind.END:
            _require_told(replies)
            assert spent == COST
    assert world.calls.balance.balance == state["balance"] - spent
    _require_nothing_held(world)


def _require_nothing_held(world: World) -> None:
    world.expire_leases()
    world.run(LEDGER)
    assert world.held() == 0


def _accepted(world: World) -> State:
    """Create a call that waits for a worker."""
    state, inbox = _unasked(world), world.calls.chat(TOKENS)
    inbox.close()
    return state | {"id": inbox.address.invocation_id}


def _give_up(world: World, state: State) -> None:
    give_up(world.calls.invoker, state["id"])


def _dispatched(world: World) -> State:
    """Create a call whose worker died after it had recorded streamed tokens. The grace period is over too."""
    state = _accepted(world)
    with world.database.autocommit() as session:
        dispatch = holds.dispatch(session, state["id"])
        assert dispatch is not None
        holds.renew(
            session, [holds.Progress(invocation_id=state["id"], token=dispatch.token, streamed_tokens=5)]
        )
    return _long_ago(world, state)


def _overdue(world: World) -> State:
    return _long_ago(world, _accepted(world))


def _long_ago(world: World, state: State) -> State:
    world.sql("UPDATE invocations SET lease_until = now() - interval '1 h' WHERE id = %(id)s", id=state["id"])
    return state


def _require_ended(ending: str, world: World, state: State) -> None:
    assert _state_of(world, state["id"]) == ending
    assert world.calls.balance.balance == state["balance"]
    assert world.held() == 0


def _require_estimate(world: World, state: State) -> None:
    """Check that the streamed tokens are charged once, with the prompt."""
    assert _state_of(world, state["id"]) == "settled"
    costs = world.sql("SELECT cost FROM usage_records WHERE invocation_id = %(id)s", id=state["id"])
    assert len(costs) == 1
    assert costs[0][0] >= 5 * 2
    assert world.calls.balance.balance == state["balance"] - costs[0][0]
    assert world.held() == 0


def _state_of(world: World, invocation_id: UUID) -> str:
    return str(world.sql("SELECT state FROM invocations WHERE id = %(id)s", id=invocation_id)[0][0])


def _reference(_: World) -> State:
    return {"reference": uuid4().hex, "answers": []}


def _enter(route: str, world: World, state: State) -> TestResponse:
    path = f"/admin/organizations/{world.organization_id}/credits/{route}"
    body = {"amount": "5", "reference": state["reference"]}
    answer = world.front.post(path, world.operator, json=body)
    if answer.status_code < 500:
        state["answers"].append(answer)
    return answer


def _require_one_entry(world: World, state: State) -> None:
    assert {answer.status_code for answer in state["answers"]} <= {200, 201}
    assert len({(answer.json["version"], answer.json["balanceAfter"]) for answer in state["answers"]}) == 1
    counted = "SELECT count(*) FROM ledger_entries WHERE reference = %(reference)s"
    assert world.sql(counted, reference=state["reference"]) == [(1,)]


def _day_of_storage(world: World) -> State:
    """Create a measured day that is not charged yet, of an organization with credits."""
    day = (datetime.now(UTC) - timedelta(days=10 + next(_DAYS))).date().isoformat()
    Calls(world.database, world.organization_id).store(day, bytes_of_30_days=GIB, price=1000)
    return {"day": day}


def _require_one_day(world: World, state: State) -> None:
    charged = "SELECT amount FROM ledger_entries WHERE kind = 'storage' AND reference = %(day)s"
    assert world.sql(charged, day=state["day"]) == [(-1000,)]


def _subject(world: World) -> State:
    person = world.front.identity.person(world.organization_id)
    return {"subject": str(person.user_id), "budget": None}


def _budgets(world: World) -> str:
    return f"/admin/organizations/{world.organization_id}/budgets"


def _create_budget(world: World, state: State) -> TestResponse:
    """Create a budget.

    If the first response was lost, the repetition reports that the budget exists, and the client finds it.
    """
    body = {
        "subjectKind": "user",
        "subjectId": state["subject"],
        "unit": "credits",
        "period": "day",
        "amount": "7",
    }
    answer = world.front.post(_budgets(world), world.owner, json=body)
    assert answer.status_code in (201, 409, 503)
    if answer.status_code < 500:
        listed = succeed(world.front.get(_budgets(world), world.owner))["budgets"]
        found = [at for at in listed if at["subjectId"] == state["subject"]]
        assert len(found) == 1
        state["budget"] = found[0]["id"]
    return answer


def _change_budget(world: World, state: State) -> TestResponse:
    path = f"{_budgets(world)}/{state['budget']}"
    return world.front.patch(path, world.owner, json={"amount": "9"})


def _delete_budget(world: World, state: State) -> TestResponse:
    return world.front.delete(f"{_budgets(world)}/{state['budget']}", world.owner)


def _require_budget(world: World, state: State) -> None:
    assert succeed(world.front.get(f"{_budgets(world)}/{state['budget']}", world.owner))["amount"] == "9"


def _require_no_budget(world: World, state: State) -> None:
    assert world.front.get(f"{_budgets(world)}/{state['budget']}", world.owner).status_code == 404


FLOWS = (
    *(
        Flow(
            name=f"model call, {name}",
            prepare=_unasked,
            steps=(partial(_call, stream),),
            require=_require_one_charge_a_call,
            sweeps=LEDGER,
            visitors=CALL_VISITORS,
            agree=_agree,
        )
        for name, stream in (("streamed", True), ("whole", False))
    ),
    Flow(
        name="model call that is given up",
        prepare=_accepted,
        steps=(_give_up,),
        require=partial(_require_ended, "voided"),
    ),
    Flow(
        name="model call that no worker took",
        prepare=_overdue,
        steps=(job("credits.release_overdue_holds"),),
        require=partial(_require_ended, "expired"),
        sweeps=LEDGER,
    ),
    Flow(
        name="model call whose worker died",
        prepare=_dispatched,
        steps=(job("credits.release_overdue_holds"), job("credits.settle_unresolved")),
        require=_require_estimate,
        sweeps=LEDGER,
    ),
    *(
        Flow(name=route, prepare=_reference, steps=(partial(_enter, route),), require=_require_one_entry)
        for route in ("top-ups", "adjustments")
    ),
    Flow(
        name="storage",
        prepare=_day_of_storage,
        steps=(job("files.accrue_storage"),),
        require=_require_one_day,
        sweeps=("files.accrue_storage",),
    ),
    Flow(
        name="budget",
        prepare=_subject,
        steps=(_create_budget, _change_budget),
        require=_require_budget,
    ),
    Flow(
        name="budget, deleted",
        prepare=_subject,
        steps=(_create_budget, _delete_budget),
        require=_require_no_budget,
    ),
)
