"""Every flow, and every request that writes and is no flow."""

from tests.proof import (
    administration,
    agent_flows,
    console,
    credit_flows,
    file_flows,
    network_flows,
    requests,
    told_flows,
)

FLOWS = (*file_flows.FLOWS, *credit_flows.FLOWS, *agent_flows.FLOWS, *network_flows.FLOWS, *told_flows.FLOWS)
WRITES = (*administration.WRITES, *console.WRITES, *requests.WRITES)
