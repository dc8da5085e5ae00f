"""Every flow, and every request that writes and is not part of a flow."""

from tests.proof import (
    administration,
    agent_flows,
    console,
    credit_flows,
    file_flows,
    network_flows,
    notification_flows,
    requests,
)

FLOWS = (
    *file_flows.FLOWS,
    *credit_flows.FLOWS,
    *agent_flows.FLOWS,
    *network_flows.FLOWS,
    *notification_flows.FLOWS,
)
WRITES = (*administration.WRITES, *console.WRITES, *requests.WRITES)
