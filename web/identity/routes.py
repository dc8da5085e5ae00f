"""All routes of identity: the OAuth endpoints, and administration under `/admin`."""

from __future__ import annotations

from web.identity import (
    deployments,
    distributions,
    identities,
    oauth,
    organizations,
    signing_keys,
    users,
)

ROUTES = (
    oauth.routes,
    organizations.routes,
    users.routes,
    identities.routes,
    deployments.routes,
    distributions.routes,
    signing_keys.routes,
)
