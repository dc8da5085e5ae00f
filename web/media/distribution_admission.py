"""Count a signed request for its distribution's organization, after the signature is verified."""

from uuid import UUID

from shared.fairness.admission import PoolKey
from shared.identity.expiring_cache import ExpiringCache
from shared.identity.lookups import find_distribution_organization
from web.framework.calls import RequestContext

KNOWN_DISTRIBUTIONS = 4096
KNOWN_SECONDS = 3600.0

_organizations = ExpiringCache[UUID](KNOWN_DISTRIBUTIONS)
"""The organization of each distribution. The cache is safe, because a distribution never changes its organization."""


def count_for_distribution(call: RequestContext, distribution_id: UUID) -> None:
    """Count the request's slot for the distribution's organization. Raises ConcurrencyLimited, PoolExhausted."""
    organization_id = _organizations.find(distribution_id.bytes)
    if organization_id is None:
        with call.services.database.autocommit() as session:
            organization_id = find_distribution_organization(session, distribution_id)
        # If the distribution was deleted after its signature was verified, the request still counts for the
        # client's address.
        if organization_id is None:
            return
        _organizations.put(distribution_id.bytes, organization_id, ttl_seconds=KNOWN_SECONDS)
    call.admission.move(PoolKey(organization_id, distribution_id))
