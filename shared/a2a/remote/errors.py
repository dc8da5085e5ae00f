"""The errors of messages that a remote agent could not answer. Clients read the docstrings of these errors."""

from shared.errors import DomainError, Kind


class RemoteAgentError(DomainError):
    """The agent's server could not be asked."""

    code = "remote_agent_failed"
    kind = Kind.UPSTREAM_FAILED


class EndpointMissing(RemoteAgentError):
    """The agent has no endpoint, or its card could not be read. Its administrator can check the endpoint."""

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
    """The agent has made no progress for longer than the time limit; it may have been restarted."""

    code = "agent_silent"


class ResponseInvalid(RemoteAgentError):
    """The agent's response does not conform to the protocol."""

    code = "remote_answer_invalid"


class ResponseTooLarge(RemoteAgentError):
    """The agent's response exceeds the size limit."""

    code = "remote_answer_too_large"
    kind = Kind.TOO_LARGE


class ReceiptUncertain(RemoteAgentError):
    """The connection to the agent broke. The message may have been received, so it was not sent again."""

    code = "receipt_uncertain"
