"""Administration of behaviors: the skills on an agent's card, and the behavior that handles a message."""

from typing import Any

import pytest

from shared.a2a.behaviors.default_agent import ASSISTANT, SCRIPT, equip_default_agent
from shared.identity.access.roles import Role
from tests.support.web.web_process import Front, open_front
from tests.web.a2a.asking import Client, text_of
from tests.web.a2a.conftest import Cast

SCRIPTED = "rules: [{steps: [{complete: '%s'}]}]"


class Administrator:
    """An administrator of Acme's deployments."""

    def __init__(self, cast: Cast) -> None:
        person = cast.front.identity.person(cast.acme, Role.WORKSPACE_ADMIN)
        self.front, self.authorization = cast.front, person.authorization
        self.deployment = cast.front.identity.deployment(cast.acme)
        self.path = f"/admin/deployments/{self.deployment.deployment.id}/behaviors"
        self.client = cast.at(self.deployment, cast.member.authorization)

    def create(self, name: str, /, *, status: int = 201, **more: Any) -> dict[str, Any]:
        body = {"name": name, "kind": "script", "description": f"{name}.", "script": SCRIPTED % name, **more}
        answer = self.front.post(self.path, self.authorization, json=body)
        assert answer.status_code == status, answer.text
        made: dict[str, Any] = answer.get_json()
        return made

    def said(self) -> str:
        return text_of(self.client.task("hello")["status"]["message"])


@pytest.fixture
def administrator(cast: Cast) -> Administrator:
    return Administrator(cast)


def test_the_first_behavior_is_the_default_until_another_is_made_so(administrator: Administrator) -> None:
    first, second = administrator.create("First"), administrator.create("Second")
    assert (first["isDefault"], second["isDefault"]) == (True, False)
    assert administrator.said() == "First"
    path = f"/admin/behaviors/{second['id']}/make-default"
    assert administrator.front.post(path, administrator.authorization).status_code == 200
    assert administrator.said() == "Second"
    third = administrator.create("Third", isDefault=True)
    assert administrator.said() == "Third"
    card = administrator.client.ask("GET", "/.well-known/agent-card.json").get_json()
    assert [skill["name"] for skill in card["skills"]] == ["Third", "First", "Second"]
    listed = administrator.front.get(administrator.path, administrator.authorization).get_json()
    assert [behavior["name"] for behavior in listed["behaviors"]] == ["First", "Second", "Third"]
    assert [behavior["isDefault"] for behavior in listed["behaviors"]] == [False, False, True]
    assert third["extensions"] == []


def test_the_default_is_removed_last(administrator: Administrator) -> None:
    ids = [administrator.create(name)["id"] for name in ("First", "Second")]
    statuses = [
        administrator.front.delete(f"/admin/behaviors/{at}", administrator.authorization).status_code
        for at in (ids[0], ids[1], ids[0], ids[0])
    ]
    assert statuses == [409, 204, 204, 404]


def test_a_behavior_is_replaced_under_its_id(administrator: Administrator) -> None:
    made = administrator.create("First", tags=["old"])
    changed = administrator.front.put(
        f"/admin/behaviors/{made['id']}",
        administrator.authorization,
        json={"name": "New", "kind": "script", "description": "New.", "script": SCRIPTED % "new"},
    ).get_json()
    assert (changed["id"], changed["name"], changed["tags"]) == (made["id"], "New", [])
    assert administrator.said() == "new"


@pytest.mark.parametrize(
    ("wrong", "status", "field"),
    [
        ({"kind": "model"}, 422, "model"),
        ({"kind": "model", "model": "m"}, 422, "script"),
        ({"model": "m"}, 422, "model"),
        ({"script": "rules: [{steps: [{nonsense: 1}]}]"}, 422, "script"),
        ({"description": " "}, 422, "description"),
        ({"extensions": [{"uri": "two words"}]}, 422, "extensions.0.uri"),
        ({"extensions": [{"uri": "https://x/v1"}, {"uri": "https://x/v1"}]}, 422, "extensions"),
        ({"extensions": [{"uri": "https://x/v1", "requires": ["a,b"]}]}, 422, "extensions"),
        ({"inputModes": [""]}, 422, "inputModes"),
        ({"kind": "other"}, 422, "kind"),
        ({"name": ""}, 422, "name"),
        ({"tag": "x"}, 400, "tag"),
    ],
)
def test_a_behavior_that_could_not_work_is_refused(
    administrator: Administrator, wrong: dict[str, Any], status: int, field: str
) -> None:
    refused = administrator.create("First", status=status, **wrong)
    assert refused["errors"][0]["name"] == field


def test_digits_of_an_extensions_parameters_reach_the_card(administrator: Administrator) -> None:
    params = '{"n":9007199254740993,"d":1.10,"e":1e400}'
    body = (
        '{"name":"First","kind":"script","description":"First.","script":"rules: [{steps: [{complete: a}]}]",'
        f'"extensions":[{{"uri":"https://x/v1","params":{params}}}]}}'
    )
    administrator.front.post(
        administrator.path, administrator.authorization, data=body, content_type="application/json"
    )
    card = administrator.client.ask("GET", "/.well-known/agent-card.json")
    assert f'"params":{params}' in card.get_data(as_text=True)


def test_two_behaviors_of_an_agent_have_two_names(administrator: Administrator) -> None:
    administrator.create("First")
    assert administrator.create("First", status=409)["code"] == "behavior_name_taken"


def test_default_agent_works_from_the_first_start(
    front: Front, cast: Cast, tmp_path_factory: pytest.TempPathFactory
) -> None:
    database = front.services.database
    deployment = front.identity.deployment(cast.acme)
    path = tmp_path_factory.mktemp("script") / "script.yaml"
    path.write_text(SCRIPTED % "scripted")
    base = {"default_agent": str(deployment.deployment.id)}
    with open_front(
        front.settings.database_url, front.settings.redis_url, tmp_path_factory.mktemp("blobs"), **base
    ) as plain:
        scripted = plain.settings.model_copy(update={"a2a_script": path})
        root = Client(plain, "", None, {})
        seen = []
        for settings in (plain.settings, plain.settings, scripted, scripted, plain.settings):
            with database.transaction() as session:
                equip_default_agent(session, settings)
            card = root.ask("GET", "/.well-known/agent-card.json").get_json()
            seen.append([skill["name"] for skill in card["skills"]])
        assert seen == [[ASSISTANT], [ASSISTANT], [SCRIPT, ASSISTANT], [SCRIPT, ASSISTANT], [ASSISTANT]]
