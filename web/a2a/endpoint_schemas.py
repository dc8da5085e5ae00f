"""Request and response models of deployments' endpoints."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from shared.a2a.agents.card_documents import Fault
from shared.a2a.remote.endpoints import Binding, Credential, EndpointDraft
from shared.egress.urls import MAX_HEADER_CHARACTERS, MAX_URL_CHARACTERS
from web.http.schemas import ResponseModel
from web.http.wire_types import CamelModel, Id, RequestModel, Text, UtcTime

Url = Annotated[str, Text(minimum=1, maximum=MAX_URL_CHARACTERS)]


class SentCredential(RequestModel):
    """A header with a credential that the agent's server requires."""

    header: Annotated[str, Text(minimum=1, maximum=200), Field(description="Such as `X-API-Key`.")]
    value: Annotated[
        str,
        Text(minimum=1, maximum=MAX_HEADER_CHARACTERS),
        Field(description="Stored encrypted, never returned."),
    ]


class NewEndpoint(RequestModel):
    """The new endpoint of a deployment."""

    url: Annotated[
        Url, Field(description="The base URL of the agent's A2A 1.0 server: https, without a query.")
    ]
    card_url: Annotated[
        Url | None, Field(description="The URL of its card, if not below the base URL or its origin.")
    ] = None
    interface_url: Annotated[
        Url | None,
        Field(description="Replaces the URL on the card as the target of messages. May have another origin."),
    ] = None
    credential: Annotated[
        SentCredential | None, Field(description="Sent with each request. Omit it to remove the credential.")
    ] = None
    resends: Annotated[
        bool, Field(description="Whether a message that may have arrived already may be sent again.")
        # False by default: if a message is delivered twice, the agent may do its work twice.
    ] = False

    def draft(self) -> EndpointDraft:
        """Return the domain's object."""
        credential = self.credential
        return EndpointDraft(
            url=self.url,
            card_url=self.card_url,
            interface_override=self.interface_url,
            credential=Credential(header=credential.header, value=credential.value) if credential else None,
            resends=self.resends,
        )


class EndpointBody(ResponseModel):
    """The endpoint that receives a deployment's messages."""

    deployment_id: Id
    url: str
    card_url: str | None
    interface_override: str | None = Field(description="The `interfaceUrl` of the request.")
    credential_header: str | None = Field(
        description="The name of the credential's header. Its value is not returned."
    )
    resends: bool
    binding: Binding | None = Field(description="The agent's protocol binding. Null until its card was read.")
    interface_url: str | None = Field(description="The target of messages. Null until the card was read.")
    streams: bool
    problem: str | None = Field(description="The problem that the last reading of the card found.")
    checked_at: UtcTime | None
    updated_at: UtcTime
    created_at: UtcTime


class FindingBody(CamelModel):
    """A problem or warning of an endpoint."""

    code: Fault
    message: str


class EndpointReportBody(ResponseModel):
    """The result of a check."""

    is_usable: bool = Field(description="Whether messages can be sent to the agent.")
    problems: Sequence[FindingBody]
    warnings: Sequence[FindingBody]
    card_address: str | None = Field(description="Where the card lay.")
    endpoint: EndpointBody
