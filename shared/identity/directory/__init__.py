"""The resources of an organization: users, members, identities, deployments, distributions."""
