"""All routes of identity: the OAuth endpoints, and administration under `/admin`."""

from web.identity import (
    deployments,
    distributions,
    identities,
    invitations,
    oauth,
    organizations,
    signing_keys,
    users,
)

ROUTES = (
    oauth.routes,
    organizations.routes,
    invitations.routes,
    invitations.public_routes,
    users.routes,
    identities.routes,
    deployments.routes,
    distributions.routes,
    signing_keys.routes,
)
