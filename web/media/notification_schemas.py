"""The JSON of notifications: where a distribution wants them, and what became of each."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field

from shared.deliveries.outbox import Delivery, DeliveryState
from shared.egress.urls import MAX_URL_CHARACTERS
from shared.pagination import Page
from web.http.schemas import PageQuery, PageResponse, ResponseModel
from web.http.wire_types import CamelModel, Id, JsonCount, RequestModel, Text, UtcTime

StateName = Literal["Waiting", "Sending", "Delivered", "Dead"]
Url = Annotated[
    str,
    Text(minimum=1, maximum=MAX_URL_CHARACTERS),
    Field(description="An https address on the public internet, without user name or password."),
]


class NewNotificationEndpoint(RequestModel):
    """The endpoint to send notifications to from now on."""

    url: Url


class NotificationEndpointBody(ResponseModel):
    """Where a distribution's notifications go."""

    distribution_id: Id
    url: str
    disabled_at: UtcTime | None = Field(
        description="When it answered 410 and was disabled; put it again to enable it."
    )
    created_at: UtcTime


class OrganizationEndpointBody(ResponseModel):
    """Where an organization's notifications go."""

    organization_id: Id
    url: str
    disabled_at: UtcTime | None = Field(
        description="When it answered 410 and was disabled; put it again to enable it."
    )
    created_at: UtcTime


class IssuedOrganizationEndpoint(OrganizationEndpointBody):
    """An endpoint with the secret that its messages are signed with."""

    webhook_secret: str = Field(description="The secret, shown only now.")


class NotificationQuery(PageQuery):
    """The parameters of a listing of notifications."""

    state: StateName | None = Field(default=None, description="Only notifications in this state.")

    @property
    def delivery_state(self) -> DeliveryState | None:
        """The state as the domain has it."""
        return None if self.state is None else DeliveryState(self.state)


class NotificationBody(ResponseModel):
    """A notification without its content, which is kept until it has arrived."""

    id: Id = Field(description="The value of `webhook-id`.")
    type: str = Field(description="What it tells about, such as `media.import.stored`.")
    state: StateName
    attempts: JsonCount
    next_attempt_at: UtcTime | None = Field(
        description="When it is tried again, while it waits; absent while it waits for another before it."
    )
    last_status: JsonCount | None = Field(description="What the endpoint answered last.")
    last_code: str | None = Field(description="Why the last attempt failed, when there was no answer.")
    last_attempt_at: UtcTime | None
    ended_at: UtcTime | None
    created_at: UtcTime

    @classmethod
    def of_delivery(cls, delivery: Delivery) -> Self:
        """Show a delivery."""
        return cls(
            id=delivery.id,
            type=delivery.event,
            state=delivery.state.value,
            attempts=delivery.attempts,
            next_attempt_at=delivery.due_at if _is_due(delivery) else None,
            last_status=delivery.last_status,
            last_code=delivery.last_code,
            last_attempt_at=delivery.last_attempt_at,
            ended_at=delivery.ended_at,
            created_at=delivery.created_at,
        )


def _is_due(delivery: Delivery) -> bool:
    return delivery.state is DeliveryState.WAITING and not delivery.is_held


class NotificationPage(PageResponse):
    """Notifications, newest first."""

    notifications: Sequence[NotificationBody]

    @classmethod
    def of_deliveries(cls, page: Page[Delivery]) -> Self:
        """Show a page of deliveries."""
        notifications = [NotificationBody.of_delivery(delivery) for delivery in page.items]
        return cls.model_validate({"notifications": notifications, "next_cursor": page.next_cursor})


class ResentNotifications(CamelModel):
    """What is being sent again."""

    count: JsonCount


class ReplayRequest(RequestModel):
    """From where on notifications are replayed; from the oldest that is kept where nothing is named."""

    since: UtcTime | None = Field(
        default=None, description="Only notifications that were written from then on."
    )
    cursor: Id | None = Field(
        default=None,
        description="Only those after this one: the last `webhook-id` received, or `nextCursor`.",
    )


class ReplayedNotifications(CamelModel):
    """How many notifications are sent again, in the order in which they were written."""

    count: JsonCount
    next_cursor: Id | None = Field(description="The `cursor` of the next request, if there are more.")
