"""The JSON of deployments' endpoints, as administrators send and see it."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from shared.a2a.remote.cards.card_documents import Fault
from shared.a2a.remote.endpoints import Binding, Credential, EndpointDraft
from shared.egress.urls import MAX_HEADER_CHARACTERS, MAX_URL_CHARACTERS
from web.http.schemas import ResponseModel
from web.http.wire_types import CamelModel, Id, RequestModel, Text, UtcTime

Url = Annotated[str, Text(minimum=1, maximum=MAX_URL_CHARACTERS)]


class SentCredential(RequestModel):
    """A header that the agent's server asks for besides ours."""

    header: Annotated[str, Text(minimum=1, maximum=200), Field(description="Such as `X-API-Key`.")]
    value: Annotated[
        str, Text(minimum=1, maximum=MAX_HEADER_CHARACTERS), Field(description="Kept encrypted, never shown.")
    ]


class NewEndpoint(RequestModel):
    """The endpoint to send messages to from now on."""

    url: Annotated[
        Url, Field(description="The base address of the agent's A2A 1.0 server: https, without a query.")
    ]
    card_url: Annotated[
        Url | None, Field(description="Where its card lies, if not below that address or its origin.")
    ] = None
    interface_url: Annotated[
        Url | None,
        Field(
            description="Where messages go, in place of the address on the card; may be of another origin."
        ),
    ] = None
    credential: Annotated[
        SentCredential | None, Field(description="Sent with each request; left out, there is none any more.")
    ] = None
    resends: Annotated[
        bool, Field(description="Whether a message may be sent again that may have arrived already.")
    ] = False

    def draft(self) -> EndpointDraft:
        """Return it as the domain takes it."""
        credential = self.credential
        return EndpointDraft(
            url=self.url,
            card_url=self.card_url,
            interface_override=self.interface_url,
            credential=Credential(header=credential.header, value=credential.value) if credential else None,
            resends=self.resends,
        )


class EndpointBody(ResponseModel):
    """Where messages to a deployment are sent."""

    deployment_id: Id
    url: str
    card_url: str | None
    interface_override: str | None = Field(description="The `interfaceUrl` that was sent.")
    credential_header: str | None = Field(description="The header of the credential, which is not shown.")
    resends: bool
    binding: Binding | None = Field(description="How the agent is spoken to; null until its card was read.")
    interface_url: str | None = Field(description="Where messages go; null until its card was read.")
    streams: bool
    problem: str | None = Field(description="What was wrong when the card was read last.")
    checked_at: UtcTime | None
    updated_at: UtcTime
    created_at: UtcTime


class FindingBody(CamelModel):
    """Something to know of an endpoint."""

    code: Fault
    message: str


class EndpointReportBody(ResponseModel):
    """What a check found."""

    is_usable: bool = Field(description="Whether messages can be sent to the agent.")
    problems: Sequence[FindingBody]
    warnings: Sequence[FindingBody]
    card_address: str | None = Field(description="Where the card lay.")
    endpoint: EndpointBody
