"""Forms of the console that write, each posted by a session with the permission.

Most forms act on the resource of the REST operation with the same effect: the ids of its path are those of the form's
path.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from werkzeug.test import TestResponse

from shared.identity.access.roles import Role
from shared.identity.directory.deployments import CreatedDeployment
from tests.proof.administration import attempt_of, make_cast
from tests.proof.world import World
from tests.proof.writes import Ask, Write
from tests.support.data.identity import Person
from tests.support.data.media_samples import PNG
from tests.support.files.file_requests import succeed
from tests.support.web.browser import begin_session, new_code
from tests.web.a2a.asking import request
from tests.web.a2a.conftest import give_behavior_to
from tests.web.console.test_action_items import push
from tests.web.files.conftest import agent_of, promote
from tests.web.identity.test_administration_matrix import OPERATIONS, address
from tests.web.identity.test_administration_matrix import World as Cast
from tests.web.media.conftest import make_connector
from web.console import cookies, csrf
from web.console.routes import PAGES

Names = Mapping[str, str]
"""The ids in the path of a form, and its fields."""
FORMS = {route.name: route for routes in PAGES for route in routes.declared if route.method == "POST"}
REST_OF_ACTIONS = {action.path: action.rest for routes in PAGES for action in routes.actions}
WRITING_NOTHING = {
    "choose_theme": "a cookie holds it",
    "ask_model": "a call to a model: the flows of calls",
    "check_endpoint": "its card is fetched: tests/web/a2a/test_remote_cards.py",
    "begin_session": "it is asked without a session: tests/proof/requests.py",
}
"""Forms that are covered elsewhere, and where."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """An organization, its users, and the user who posts."""

    world: World
    cast: Cast
    by: Person


def _file(scene: Scene) -> Names:
    agent = agent_of(scene.world.front, agent_of_console(scene.world))
    file = succeed(agent.upload(b"content", file_name=PNG.file_name), 201)
    scene.world.run(["files.place_staged"])
    return {"file_id": file["id"], "version": file["versionId"], "life": "3600", "name": PNG.file_name}


def agent_of_console(world: World) -> CreatedDeployment:
    """Return an agent of the cast's organization that replies and stores files."""
    made: CreatedDeployment = world.once(_agent)
    return made


def task_of_console(world: World, authorization: str) -> str:
    """Send that agent a message. Return the task, whose turn no worker runs yet."""
    said = request("hello", configuration={"returnImmediately": True})
    path = f"/agents/{agent_of_console(world).deployment.id}/message:send"
    task_id: str = succeed(world.front.post(path, authorization, json=said))["task"]["id"]
    return task_id


def _agent(world: World) -> CreatedDeployment:
    cast: Cast = world.once(make_cast)
    made = world.front.identity.deployment(cast.organization_id)
    promote(world.front, made)
    give_behavior_to(world.front, made.deployment.id, "rules: [{steps: [{complete: Done}]}]")
    return made


def _kept_for_a_while(scene: Scene) -> Names:
    named = _file(scene)
    scene.world.sql(
        "UPDATE files SET retention_expires_at = now() + interval '1 day' WHERE id = %(id)s",
        id=named["file_id"],
    )
    return {**named, "for": "ever"}


def _link(scene: Scene) -> Names:
    agent, file = agent_of(scene.world.front, agent_of_console(scene.world)), _file(scene)
    shared = succeed(agent.grant({"id": file["file_id"], "versionId": file["version"]}), 201)
    return {**file, "grant_id": shared["grantId"]}


def _talk(scene: Scene) -> Names:
    return {"deployment_id": str(agent_of_console(scene.world).deployment.id), "message": "hello"}


def _task(scene: Scene) -> Names:
    return {**_talk(scene), "task_id": task_of_console(scene.world, scene.by.authorization)}


def _key(scene: Scene) -> Names:
    found = _from_rest_operation("revoke_key", scene)
    keys = scene.world.sql("SELECT name FROM api_keys WHERE id = %(id)s", id=found["key_id"])
    return {**found, "name": keys[0][0]}


def _limited_key(scene: Scene) -> Names:
    return {**_from_rest_operation("set_models", scene), "model:acme/one": "on"}


def _new_key(_: Scene) -> Names:
    return {"name": "Mine", "ends": "90", "bound": "yes", "limit": "5"}


def _budget(scene: Scene) -> Names:
    someone = scene.world.front.identity.person(scene.cast.organization_id)
    return {"subject": f"user:{someone.user_id}", "amount": "5", "period": "day"}


def _binding(scene: Scene) -> Names:
    subject = scene.world.front.identity.principal(scene.cast.organization_id)
    return {"subject": str(subject.id), "role": "ProjectAgent", "scope": str(scene.cast.principal_id)}


def _import(scene: Scene) -> Names:
    """Create a failed import of a distribution of its own."""
    connector = make_connector(scene.world.front, scene.cast.organization_id)
    return {"distribution_id": str(connector.id), "import_id": str(push(connector, "Failed", "media_gone"))}


def _proof(scene: Scene) -> Names:
    return {"proof": new_code(scene.world.front, scene.by.user_id)}


def _and(form: str, **fields: str) -> Callable[[Scene], Names]:
    return lambda scene: {**_from_rest_operation(form, scene), **fields}


def _just(**fields: str) -> Callable[[Scene], Names]:
    return lambda _: fields


NEEDS: dict[str, Callable[[Scene], Names]] = {
    "share": _file,
    "revoke_link": _link,
    "renew": _kept_for_a_while,
    "delete": _file,
    "start_task": _talk,
    "send_to_task": _task,
    "cancel": _task,
    "issue_key": _new_key,
    "set_models": _limited_key,
    "revoke_key": _key,
    "add_budget": _budget,
    "set_budget": _and("set_budget", amount="9"),
    "add_credits": lambda _: {"amount": "5", "reference": uuid4().hex},
    "set_limit": _just(limit="12"),
    "invite": lambda _: {"email": address(), "role": "Member"},
    "set_role": _and("set_role", role="WorkspaceAdmin"),
    "add_identity": _just(name="Mailbox"),
    "bind": _binding,
    "retry_one": _import,
    "retry_all": _import,
    "replay": _and("replay", since="2020-01-01"),
    "end_session": _just(),
    "confirm_identity": _proof,
    "choose_organization": lambda scene: {"organization": str(scene.cast.organization_id)},
}
"""The ids and fields that a form needs besides those of its REST operation."""
LATE = {"confirm_identity": 422}
"""The status of the second of two simultaneous requests: the code is used, whereas later the session has ended."""
BY_OPERATORS = {"add_credits"}
OF_ORGANIZATIONS = {
    "issue_key",
    "add_credits",
    "set_limit",
    "suspend_spending",
    "resume_spending",
    "add_budget",
}
"""Forms for what an organization has once. Each attempt uses an organization of its own."""


def _from_rest_operation(form: str, scene: Scene) -> Names:
    """Create the resource of the form's REST operation. Return the ids in its path by name."""
    twin = REST_OF_ACTIONS[FORMS[form].path]
    assert twin is not None
    pattern = re.sub(r"<[^:>]+:(\w+)>", r"(?P<\1>[^/]+)", OPERATIONS[twin].path)
    found = re.fullmatch(pattern, f"/admin/{attempt_of(scene.cast, twin).path}")
    assert found is not None
    return found.groupdict()


def _prepare(form: str, world: World) -> Ask:
    cast: Cast = world.once(make_cast)
    by = cast.owner
    if form in OF_ORGANIZATIONS:
        organization_id = world.front.identity.organization().id
        by = world.front.identity.person(organization_id, Role.WORKSPACE_OWNER)
        is_operator = form in BY_OPERATORS
        world.sql("UPDATE users SET is_operator = %(yes)s WHERE id = %(id)s", yes=is_operator, id=by.user_id)
        cast = replace(cast, organization_id=organization_id, owner=by)
    scene = Scene(world=world, cast=cast, by=by)
    named = NEEDS.get(form, partial(_from_rest_operation, form))(scene)
    path = re.sub(r"<\w+:(\w+)>", lambda at: named[at[1]], FORMS[form].path)
    secret = begin_session(world.front, by.user_id, cast.organization_id)
    return partial(post, world, path, secret, named)


def post(world: World, path: str, secret: str, fields: Names, cookie: str = cookies.SESSION) -> TestResponse:
    """Post a form as a browser with this session secret."""
    client = world.front.app.test_client(use_cookies=False)
    headers = {"Cookie": f"{cookie}={secret}", "Sec-Fetch-Site": "same-origin"}
    return client.post(
        path, data={csrf.FIELD: csrf.token_for(secret), **fields}, headers=headers, buffered=True
    )


WRITES = tuple(
    Write(name=f"console: {form}", prepare=partial(_prepare, form), late=LATE.get(form))
    for form in FORMS
    if form not in WRITING_NOTHING
)
