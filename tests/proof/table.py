"""Every flow."""

from tests.proof import agent_flows, credit_flows, file_flows

FLOWS = (*file_flows.FLOWS, *credit_flows.FLOWS, *agent_flows.FLOWS)
