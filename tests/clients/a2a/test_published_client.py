"""The published client can use every operation over both bindings, against real processes."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import httpx
import pytest
from a2a.client.errors import A2AClientError
from a2a.types import (
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils import TransportProtocol
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    ExtensionSupportRequiredError,
    InvalidAgentResponseError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)

from shared.a2a.updates import DeclaredExtension
from tests.clients.a2a import conftest
from tests.clients.a2a.conftest import Agents, Talk, activating, run
from tests.clients.a2a.receiving import receiving
from tests.support.processes.stack import wait_until

THIRD = "https://example.com/extensions/third/v1"
Talking = Callable[..., AbstractAsyncContextManager[Talk]]


@pytest.fixture(params=[TransportProtocol.HTTP_JSON, TransportProtocol.JSONRPC])
def talking(request: pytest.FixtureRequest) -> Talking:
    """Return a function that creates clients for one binding."""
    return partial(conftest.talking, binding=request.param)


@pytest.fixture(scope="module")
def authorization(agents: Agents) -> str:
    """A member's authorization."""
    return agents.service.identity.person(agents.service.organization_id).authorization


def test_the_default_agent_answers_with_a_model_at_once(agents: Agents, talking: Talking) -> None:
    async def conversation() -> None:
        owner = f"Bearer {agents.service.api_key}"
        async with talking(agents.service.front.url, owner) as talk:
            events = await talk.say("Say this")
            assert events[0].task.status.state == TaskState.TASK_STATE_SUBMITTED
            assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
            task = await talk.client.get_task(GetTaskRequest(id=events[0].task.id))
            assert "Say this" in str(task.artifacts)

    run(conversation)


def test_client_streams_tasks_and_messages(agents: Agents, authorization: str, talking: Talking) -> None:
    async def conversation() -> None:
        async with talking(agents.address(), authorization) as talk:
            events = await talk.say("work")
            assert [event.WhichOneof("payload") for event in events] == [
                "task",
                "status_update",
                *["artifact_update"] * 3,
                "status_update",
            ]
            messages = await talk.say("ping")
            assert [event.message.parts[0].text for event in messages] == ["pong"]

    run(conversation)


def test_client_waits_for_tasks_and_messages(agents: Agents, authorization: str, talking: Talking) -> None:
    async def conversation() -> None:
        async with talking(agents.address(), authorization, streaming=False) as talk:
            (answer,) = await talk.say("work")
            assert answer.task.status.state == TaskState.TASK_STATE_COMPLETED
            assert answer.task.artifacts[0].parts[0].text == "Once upon a time"
            (message,) = await talk.say("ping")
            assert message.message.parts[0].text == "pong"

    run(conversation)


def test_conversation_continues_at_another_web_process(
    agents: Agents, authorization: str, talking: Talking
) -> None:
    async def conversation() -> None:
        async with (
            talking(agents.address(), authorization) as talk,
            talking(agents.address(front=agents.fronts[0]), authorization) as elsewhere,
        ):
            asked = await talk.say("ask")
            task = asked[0].task
            assert asked[-1].status_update.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
            answered = await elsewhere.say("this one", task_id=task.id, context_id=task.context_id)
            assert answered[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
            read = await talk.client.get_task(GetTaskRequest(id=task.id, history_length=1))
            assert [message.parts[0].text for message in read.history] == ["this one"]
            listed = await elsewhere.client.list_tasks(
                ListTasksRequest(context_id=task.context_id, include_artifacts=True, page_size=1)
            )
            assert [found.id for found in listed.tasks] == [task.id]

    run(conversation)


def test_task_is_followed_and_cancelled_at_another_web_process(
    agents: Agents, authorization: str, talking: Talking
) -> None:
    async def conversation() -> None:
        async with (
            talking(agents.address(), authorization, streaming=False, polling=True) as talk,
            talking(agents.address(front=agents.fronts[0]), authorization) as elsewhere,
        ):
            (begun,) = await talk.say("hang")
            events = []
            async for event in elsewhere.client.subscribe(SubscribeToTaskRequest(id=begun.task.id)):
                events.append(event)
                if len(events) == 1:
                    cancelled = await talk.client.cancel_task(CancelTaskRequest(id=begun.task.id))
                    assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
            assert events[0].task.id == begun.task.id
            assert events[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED
            with pytest.raises(TaskNotCancelableError):
                await elsewhere.client.cancel_task(CancelTaskRequest(id=begun.task.id))

    run(conversation)


def test_push_notifications_are_configured_and_arrive(
    agents: Agents, authorization: str, talking: Talking
) -> None:
    async def conversation() -> None:
        async with talking(agents.address(), authorization, streaming=False) as talk:
            (asked,) = await talk.say("ask")
            wanted = TaskPushNotificationConfig(
                task_id=asked.task.id,
                id="mine",
                url=receiver.url,
                token="t",
                authentication=AuthenticationInfo(scheme="Bearer", credentials="secret"),
            )
            made = await talk.client.create_task_push_notification_config(wanted)
            assert (made.id, made.url, made.token) == ("mine", receiver.url, "t")
            named = {"task_id": asked.task.id, "id": "mine"}
            read = await talk.client.get_task_push_notification_config(
                GetTaskPushNotificationConfigRequest(**named)
            )
            listed = await talk.client.list_task_push_notification_configs(
                ListTaskPushNotificationConfigsRequest(task_id=asked.task.id)
            )
            assert list(listed.configs) == [read] == [made]
            await talk.say("this one", task_id=asked.task.id)
            wait_until(lambda: len(receiver.received) >= 2, "both updates have arrived")
            await talk.client.delete_task_push_notification_config(
                DeleteTaskPushNotificationConfigRequest(**named)
            )
            with pytest.raises(TaskNotFoundError):
                await talk.client.get_task_push_notification_config(
                    GetTaskPushNotificationConfigRequest(**named)
                )

    with receiving() as receiver:
        run(conversation)
    states = [body["statusUpdate"]["status"]["state"] for _, body in receiver.received]
    assert states == ["TASK_STATE_SUBMITTED", "TASK_STATE_COMPLETED"]
    assert {headers["Authorization"] for headers, _ in receiver.received} == {"Bearer secret"}


def test_client_reads_the_extended_card(agents: Agents, authorization: str, talking: Talking) -> None:
    async def conversation() -> None:
        async with talking(agents.address(), authorization) as talk:
            card = await talk.client.get_extended_agent_card(GetExtendedAgentCardRequest())
            assert card.name == "Scripted"
            assert "a script" in card.skills[0].description

    run(conversation)


def test_extensions_are_activated_echoed_and_required(
    agents: Agents, authorization: str, talking: Talking
) -> None:
    picky = agents.new_agent(extensions=(DeclaredExtension(uri=THIRD, required=True),))
    event = f"{agents.second.url}/extensions/event/v1"

    async def conversation() -> None:
        for streaming in (True, False):
            async with talking(agents.address(picky), authorization, streaming=streaming) as talk:
                declared = [at.uri for at in talk.client._card.capabilities.extensions]  # type: ignore[attr-defined]
                assert {THIRD, event} <= set(declared)
                talk.echoed.clear()
                await talk.say("work", THIRD, event, "https://example.com/unknown")
                with pytest.raises(ExtensionSupportRequiredError):
                    await talk.say("work", event)
                await talk.client.list_tasks(ListTasksRequest(), context=activating(THIRD))
                assert [sorted(uris) for uris in talk.echoed] == [sorted([THIRD, event]), [event], [THIRD]]

    run(conversation)


def test_client_raises_the_protocols_errors(agents: Agents, authorization: str, talking: Talking) -> None:
    async def conversation() -> None:
        async with talking(agents.address(), authorization, streaming=False) as talk:
            (done,) = await talk.say("work")
            with pytest.raises(TaskNotFoundError):
                await talk.client.get_task(GetTaskRequest(id="no-such-task"))
            with pytest.raises(TaskNotFoundError):
                await talk.say("more", task_id="0198a1b2-0000-7000-8000-000000000001")
            with pytest.raises(UnsupportedOperationError):
                await talk.say("more", task_id=done.task.id)
            async with talking(agents.address(), authorization) as follower:
                following = follower.client.subscribe(SubscribeToTaskRequest(id=done.task.id))
                with pytest.raises(UnsupportedOperationError):
                    await anext(following)
            with pytest.raises(InvalidAgentResponseError):
                await talk.say("silence")
            with pytest.raises(InvalidParamsError):
                await talk.client.list_tasks(ListTasksRequest(page_token="nonsense"))
            image = Message(
                message_id="1", role=Role.ROLE_USER, parts=[Part(raw=b"x", media_type="image/png")]
            )
            sending = talk.client.send_message(SendMessageRequest(message=image))
            with pytest.raises(ContentTypeNotSupportedError):
                await anext(sending)
            context = activating()
            context.service_parameters = {"A2A-Version": "2.0"}
            with pytest.raises(VersionNotSupportedError):
                await talk.client.list_tasks(ListTasksRequest(), context=context)
        async with talking(agents.address(), "Bearer wrong", streaming=False) as stranger:
            with pytest.raises(A2AClientError):
                await stranger.say("work")

    run(conversation)


def test_message_returns_immediately_if_configured(
    agents: Agents, authorization: str, talking: Talking
) -> None:
    async def conversation() -> None:
        async with talking(agents.address(), authorization, streaming=False) as talk:
            said = Message(message_id="1", role=Role.ROLE_USER, parts=[Part(text="hang")])
            configuration = SendMessageConfiguration(return_immediately=True)
            request = SendMessageRequest(message=said, configuration=configuration)
            (begun,) = [event async for event in talk.client.send_message(request)]
            assert begun.task.status.state == TaskState.TASK_STATE_SUBMITTED
            await talk.client.cancel_task(CancelTaskRequest(id=begun.task.id))

    run(conversation)


def test_large_integers_are_unchanged_in_every_response(agents: Agents, authorization: str) -> None:
    body = (
        '{"message":{"messageId":"n","role":"ROLE_USER","parts":[{"text":"echo"},'
        '{"data":{"revision":9007199254740993,"price":1.10}}],"metadata":{"n":9007199254740993}}}'
    )
    headers = {"Authorization": authorization, "Content-Type": "application/json"}
    texts: list[str] = []
    for address in (agents.address(), agents.address(front=agents.fronts[0])):
        with httpx.Client(headers=headers, timeout=60) as http:
            sent = http.post(f"{address}/message:send", content=body)
            task: dict[str, Any] = sent.json()["task"]
            streamed = http.post(f"{address}/message:stream", content=body)
            texts += [sent.text, streamed.text, http.get(f"{address}/tasks/{task['id']}").text]
    for text in texts:
        assert '{"revision":9007199254740993,"price":1.10}' in text
        assert '"n":9007199254740993' in text


def test_an_agent_talks_to_another_as_itself(agents: Agents, talking: Talking) -> None:
    identity = agents.service.identity
    caller = identity.deployment(agents.service.organization_id)
    token = identity.authorization(caller)

    async def conversation() -> None:
        async with talking(agents.address(front=agents.fronts[0]), token) as talk:
            assert (await talk.say("work"))[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
            assert len((await talk.client.list_tasks(ListTasksRequest())).tasks) == 1

    run(conversation)
