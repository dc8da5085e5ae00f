"""Why a message could not be answered by an agent that runs elsewhere; the sentence is what its client reads."""

from shared.errors import DomainError, Kind


class RemoteAgentError(DomainError):
    """The agent could not be asked."""

    code = "remote_agent_failed"
    kind = Kind.UPSTREAM_FAILED


class EndpointMissing(RemoteAgentError):
    """The agent has no endpoint any more, or nothing could be learned about it; its administrator can check it."""

    code = "endpoint_missing"


class AgentUnreachable(RemoteAgentError):
    """The agent could not be reached."""

    code = "agent_unreachable"


class AgentRefused(RemoteAgentError):
    """The agent refused the message."""

    code = "agent_refused"


class AgentForgot(RemoteAgentError):
    """The agent no longer knows the task; it may have been restarted."""

    code = "agent_forgot"


class AgentSilent(RemoteAgentError):
    """The agent has said nothing for longer than is waited; it may have been restarted."""

    code = "agent_silent"


class ResponseInvalid(RemoteAgentError):
    """The agent's answer is not what the protocol says."""

    code = "remote_answer_invalid"


class ResponseTooLarge(RemoteAgentError):
    """The agent's answer is larger than is accepted."""

    code = "remote_answer_too_large"
    kind = Kind.TOO_LARGE


class ReceiptUncertain(RemoteAgentError):
    """The connection to the agent broke; the message may have been received, and so is not sent again."""

    code = "receipt_uncertain"
