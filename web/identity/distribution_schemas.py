"""The JSON of distributions and of the attributions that they mint."""

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

ROUTES_MESSAGES = "Whether messages that its networks' webhooks tell of are sent to the deployment's agent."
Network = Annotated[str, Field(pattern="^[a-z][a-z0-9._-]{0,62}$")]
Networks = Annotated[Sequence[Network], Field(min_length=1, max_length=MAX_NETWORKS)]
RetentionDays = Annotated[JsonCount, Between(minimum=1, maximum=MAX_MEDIA_RETENTION_DAYS)]
Reported = Annotated[str, Text(minimum=1, maximum=MAX_REPORTED_CHARACTERS)]


class DistributionBody(ResponseModel):
    """A distribution: the networks it routes from, who receives, and which deployment answers."""

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

    token: str = Field(description="The token to call us with, shown only now.")
    webhook_secret: str = Field(description="The secret to sign webhooks with, shown only now.")


class DistributionPage(PageResponse):
    """Distributions, oldest first."""

    distributions: Sequence[DistributionBody]


class NewDistribution(RequestModel):
    """A distribution to make."""

    name: Name
    networks: Networks
    principal_identity_id: Id = Field(description="The identity that receives, and owns what is imported.")
    deployment_id: Id = Field(description="The deployment that answers.")
    media_retention_days: RetentionDays = DEFAULT_MEDIA_RETENTION_DAYS
    routes_messages: StrictBool = Field(default=False, description=ROUTES_MESSAGES)


class ChangedDistribution(RequestModel):
    """What to change of a distribution; what is omitted or null stays."""

    name: Name | None = None
    networks: Networks | None = None
    media_retention_days: RetentionDays | None = None
    routes_messages: StrictBool | None = Field(default=None, description=ROUTES_MESSAGES)


class RotationQuery(RequestModel):
    """The parameters of a rotation."""

    overlap_seconds: Annotated[
        Count,
        Between(minimum=0, maximum=MAX_OVERLAP_SECONDS),
        Field(description="How long the replaced secret stays good, in seconds."),
    ] = DEFAULT_OVERLAP_SECONDS


class RotatedToken(CamelModel):
    """A distribution's new token."""

    token: str = Field(description="The token, shown only now.")


class RotatedWebhookSecret(CamelModel):
    """A distribution's new webhook secret."""

    webhook_secret: str = Field(description="The secret, shown only now.")


class ReportedCallerBody(RequestModel):
    """Who the network says has written; it is shown, and decides nothing."""

    id: Reported
    display: Reported | None = None


class NewAttribution(RequestModel):
    """A request that the distribution is about to route to its deployment."""

    message_id: Reported | None = Field(default=None, description="The network's id of the message.")
    channel: Reported | None = Field(default=None, description="The network it came from.")
    reported_caller: ReportedCallerBody | None = None


class AttributionBody(CamelModel):
    """The header to send along with the routed request, unchanged."""

    attribution: str = Field(description="The value of `Service-Usage-Attribution`.")
    transaction_id: str = Field(description="Names the routed request.")
    expires_at: UtcTime
