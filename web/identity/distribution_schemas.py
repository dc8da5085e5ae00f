"""The JSON of distributions and of the attributions that they create."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, StrictBool

from shared.identity.directory.distributions import (
    DEFAULT_MEDIA_RETENTION_DAYS,
    DEFAULT_OVERLAP_SECONDS,
    MAX_MEDIA_RETENTION_DAYS,
    MAX_OVERLAP_SECONDS,
)
from shared.identity.field_validation import MAX_NETWORKS
from shared.identity.token_endpoint.attribution_minting import MAX_REPORTED_CHARACTERS
from web.http.schemas import PageResponse, ResponseModel
from web.http.wire_types import Between, CamelModel, Count, Id, JsonCount, Name, RequestModel, Text, UtcTime

ROUTES_MESSAGES = "Whether messages in its networks' webhooks are sent to the deployment's agent."
Network = Annotated[str, Field(pattern="^[a-z][a-z0-9._-]{0,62}$")]
Networks = Annotated[Sequence[Network], Field(min_length=1, max_length=MAX_NETWORKS)]
RetentionDays = Annotated[JsonCount, Between(minimum=1, maximum=MAX_MEDIA_RETENTION_DAYS)]
Reported = Annotated[str, Text(minimum=1, maximum=MAX_REPORTED_CHARACTERS)]


class DistributionBody(ResponseModel):
    """A distribution: its networks, the receiving identity, and the deployment of the agent that replies."""

    id: Id
    organization_id: Id
    name: str
    networks: Sequence[str]
    principal_identity_id: Id
    deployment_id: Id
    token_last4: str = Field(description="The token's last four characters.")
    media_retention_days: JsonCount
    routes_messages: bool = Field(description=ROUTES_MESSAGES)
    disabled_at: UtcTime | None
    last_used_at: UtcTime | None
    created_at: UtcTime


class CreatedDistribution(DistributionBody):
    """A new distribution with its secrets."""

    token: str = Field(description="The token for calls to this service, returned only once.")
    webhook_secret: str = Field(description="The secret that signs webhooks, returned only once.")


class DistributionPage(PageResponse):
    """Distributions, oldest first."""

    distributions: Sequence[DistributionBody]


class NewDistribution(RequestModel):
    """A distribution to create."""

    name: Name
    networks: Networks
    principal_identity_id: Id = Field(description="The receiving identity, which owns the imported files.")
    deployment_id: Id = Field(description="The deployment of the agent that replies.")
    media_retention_days: RetentionDays = DEFAULT_MEDIA_RETENTION_DAYS
    routes_messages: StrictBool = Field(default=False, description=ROUTES_MESSAGES)


class ChangedDistribution(RequestModel):
    """The changed fields of a distribution; an omitted or null field keeps its value."""

    name: Name | None = None
    networks: Networks | None = None
    media_retention_days: RetentionDays | None = None
    routes_messages: StrictBool | None = Field(default=None, description=ROUTES_MESSAGES)


class RotationQuery(RequestModel):
    """The parameters of a rotation."""

    overlap_seconds: Annotated[
        Count,
        Between(minimum=0, maximum=MAX_OVERLAP_SECONDS),
        Field(description="Seconds for which the replaced secret stays valid."),
    ] = DEFAULT_OVERLAP_SECONDS


class RotatedToken(CamelModel):
    """A distribution's new token."""

    token: str = Field(description="The token, returned only once.")


class RotatedWebhookSecret(CamelModel):
    """A distribution's new webhook secret."""

    webhook_secret: str = Field(description="The secret, returned only once.")


class ReportedCallerBody(RequestModel):
    """The sender that the network reports. It is displayed, and gives no permission."""

    id: Reported
    display: Reported | None = None


class NewAttribution(RequestModel):
    """A request that the distribution routes to its deployment."""

    message_id: Reported | None = Field(default=None, description="The network's id of the message.")
    channel: Reported | None = Field(default=None, description="The network of the message.")
    reported_caller: ReportedCallerBody | None = None


class AttributionBody(CamelModel):
    """The header that the routed request must carry unchanged."""

    attribution: str = Field(description="The value of `Service-Usage-Attribution`.")
    transaction_id: str = Field(description="The id of the routed request.")
    expires_at: UtcTime
