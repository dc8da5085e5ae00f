"""JSON schemas of notification endpoints, and of notifications with their delivery state."""

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
    """The endpoint that receives notifications from now on."""

    url: Url


class NotificationEndpointBody(ResponseModel):
    """The notification endpoint of a distribution."""

    distribution_id: Id
    url: str
    disabled_at: UtcTime | None = Field(
        description="When it responded 410 and was disabled; put it again to enable it."
    )
    created_at: UtcTime


class OrganizationEndpointBody(ResponseModel):
    """The notification endpoint of an organization."""

    organization_id: Id
    url: str
    disabled_at: UtcTime | None = Field(
        description="When it responded 410 and was disabled; put it again to enable it."
    )
    created_at: UtcTime


class IssuedOrganizationEndpoint(OrganizationEndpointBody):
    """An endpoint with the secret that signs its messages."""

    webhook_secret: str = Field(description="The secret, shown only now.")


class NotificationQuery(PageQuery):
    """Parameters of a list of notifications."""

    state: StateName | None = Field(default=None, description="Only notifications in this state.")

    @property
    def delivery_state(self) -> DeliveryState | None:
        """The requested state as the domain's type, or None for all states."""
        return None if self.state is None else DeliveryState(self.state)


class NotificationBody(ResponseModel):
    """A notification without its content, which is deleted on delivery."""

    id: Id = Field(description="The value of `webhook-id`.")
    type: str = Field(description="The event's type, such as `media.import.stored`.")
    state: StateName
    attempts: JsonCount
    next_attempt_at: UtcTime | None = Field(
        description="The next attempt, while it waits; absent while it waits for an earlier notification."
    )
    last_status: JsonCount | None = Field(description="Status of the endpoint's last response.")
    last_code: str | None = Field(description="Why the last attempt failed, if there was no response.")
    last_attempt_at: UtcTime | None
    ended_at: UtcTime | None
    created_at: UtcTime

    @classmethod
    def of_delivery(cls, delivery: Delivery) -> Self:
        """Return the JSON of a delivery."""
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
    # Omit due_at of a held delivery: it is a placeholder at the end of time.
    return delivery.state is DeliveryState.WAITING and not delivery.is_held


class NotificationPage(PageResponse):
    """Notifications, newest first."""

    notifications: Sequence[NotificationBody]

    @classmethod
    def of_deliveries(cls, page: Page[Delivery]) -> Self:
        """Return the JSON of a page of deliveries."""
        notifications = [NotificationBody.of_delivery(delivery) for delivery in page.items]
        return cls.model_validate({"notifications": notifications, "next_cursor": page.next_cursor})


class ResentNotifications(CamelModel):
    """How many notifications are sent again."""

    count: JsonCount


class ReplayRequest(RequestModel):
    """Where a replay starts; without a field, at the oldest notification that is kept."""

    since: UtcTime | None = Field(
        default=None, description="Only notifications created at or after this time."
    )
    cursor: Id | None = Field(
        default=None,
        description="Only notifications after this one: the last `webhook-id` received, or `nextCursor`.",
    )


class ReplayedNotifications(CamelModel):
    """How many notifications are sent again, in the order of their creation."""

    count: JsonCount
    next_cursor: Id | None = Field(description="The `cursor` of the next request, if there are more.")
