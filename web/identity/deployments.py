"""Administer deployments, their versions and their client secrets."""

from __future__ import annotations

from uuid import UUID

from shared.identity import client_credentials, deployments, versions
from shared.identity.errors import GrantExceedsGranter, TooManyLive, VersionRevoked
from web.administration import AdministrationRoutes, created
from web.calls import Answer, Call
from web.identity import agent_schemas as schemas

routes = AdministrationRoutes("deployments")


@routes.creates(
    "/organizations/<id:organization_id>/deployments",
    schemas.NewDeployment,
    schemas.CreatedDeployment,
    GrantExceedsGranter,
)
def create_deployment(call: Call, organization_id: UUID) -> Answer:
    """Create a deployment with its Daemon Identity, its first version and a client secret, shown only now."""
    by = call.actor
    body: schemas.NewDeployment = call.read_body()
    with call.services.database.transaction() as session:
        made = deployments.create_deployment(
            session,
            by=by,
            organization_id=organization_id,
            kind=deployments.DeploymentKind(body.kind),
            name=body.name,
            label=body.label,
        )
    shown = schemas.CreatedDeployment.with_secret(
        made.deployment,
        client_credential_id=made.credential.credential.id,
        client_secret=made.credential.secret.value,
    )
    return created(call, shown, f"/deployments/{made.deployment.id}")


@routes.lists("/organizations/<id:organization_id>/deployments", schemas.DeploymentPage)
def list_deployments(call: Call, organization_id: UUID) -> Answer:
    """List the deployments of an organization."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = deployments.list_deployments(
            session, by=by, organization_id=organization_id, **call.query.position
        )
    return Answer(body=schemas.DeploymentPage.of(page))


@routes.reads("/deployments/<id:deployment_id>", schemas.DeploymentBody)
def read_deployment(call: Call, deployment_id: UUID) -> Answer:
    """Get a deployment."""
    by = call.actor
    with call.services.database.transaction() as session:
        found = deployments.get_deployment(session, by=by, deployment_id=deployment_id)
    return Answer(body=schemas.DeploymentBody.of(found))


@routes.acts("/deployments/<id:deployment_id>/disable", schemas.DeploymentBody)
def disable_deployment(call: Call, deployment_id: UUID) -> Answer:
    """Disable a deployment: its tokens and secrets are refused until it is enabled."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = deployments.disable_deployment(session, by=by, deployment_id=deployment_id)
    return Answer(body=schemas.DeploymentBody.of(changed))


@routes.acts("/deployments/<id:deployment_id>/enable", schemas.DeploymentBody)
def enable_deployment(call: Call, deployment_id: UUID) -> Answer:
    """Enable a disabled deployment."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = deployments.enable_deployment(session, by=by, deployment_id=deployment_id)
    return Answer(body=schemas.DeploymentBody.of(changed))


@routes.creates("/deployments/<id:deployment_id>/versions", schemas.NewVersion, schemas.DeployedVersionBody)
def deploy_version(call: Call, deployment_id: UUID) -> Answer:
    """Create a version and make it the active one."""
    by = call.actor
    body: schemas.NewVersion = call.read_body()
    with call.services.database.transaction() as session:
        made = versions.deploy_version(session, by=by, deployment_id=deployment_id, label=body.label)
    return created(call, schemas.DeployedVersionBody.of(made), f"/versions/{made.id}")


@routes.lists("/deployments/<id:deployment_id>/versions", schemas.DeployedVersionPage)
def list_deployed_versions(call: Call, deployment_id: UUID) -> Answer:
    """List the versions of a deployment."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = versions.list_versions(session, by=by, deployment_id=deployment_id, **call.query.position)
    return Answer(body=schemas.DeployedVersionPage.of(page))


@routes.reads("/versions/<id:version_id>", schemas.DeployedVersionBody)
def read_deployed_version(call: Call, version_id: UUID) -> Answer:
    """Get a version of a deployment."""
    by = call.actor
    with call.services.database.transaction() as session:
        found = versions.get_version(session, by=by, version_id=version_id)
    return Answer(body=schemas.DeployedVersionBody.of(found))


@routes.acts("/versions/<id:version_id>/activate", schemas.DeployedVersionBody, VersionRevoked)
def activate_version(call: Call, version_id: UUID) -> Answer:
    """Activate an earlier version, unless it was revoked."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = versions.activate_version(session, by=by, version_id=version_id)
    return Answer(body=schemas.DeployedVersionBody.of(changed))


@routes.acts("/versions/<id:version_id>/revoke", schemas.DeployedVersionBody)
def revoke_version(call: Call, version_id: UUID) -> Answer:
    """Revoke a version, and every token of it."""
    by = call.actor
    with call.services.database.transaction() as session:
        changed = versions.revoke_version(session, by=by, version_id=version_id)
    return Answer(body=schemas.DeployedVersionBody.of(changed))


@routes.creates(
    "/deployments/<id:deployment_id>/client-credentials",
    schemas.NewClientCredential,
    schemas.IssuedClientCredential,
    TooManyLive,
)
def issue_client_credential(call: Call, deployment_id: UUID) -> Answer:
    """Create another client secret, shown only now; two may live at once, so that one can replace the other."""
    by = call.actor
    body: schemas.NewClientCredential = call.read_body()
    with call.services.database.transaction() as session:
        issued = client_credentials.issue_client_credential(
            session, by=by, deployment_id=deployment_id, expires_at=body.expires_at
        )
    shown = schemas.IssuedClientCredential.with_secret(issued.credential, client_secret=issued.secret.value)
    return created(call, shown, f"/client-credentials/{issued.credential.id}")


@routes.lists("/deployments/<id:deployment_id>/client-credentials", schemas.ClientCredentialPage)
def list_client_credentials(call: Call, deployment_id: UUID) -> Answer:
    """List the client secrets of a deployment, without the secrets."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = client_credentials.list_client_credentials(
            session, by=by, deployment_id=deployment_id, **call.query.position
        )
    return Answer(body=schemas.ClientCredentialPage.of(page))


@routes.reads("/client-credentials/<id:credential_id>", schemas.ClientCredentialBody)
def read_client_credential(call: Call, credential_id: UUID) -> Answer:
    """Get a client secret, without the secret itself."""
    by = call.actor
    with call.services.database.transaction() as session:
        found = client_credentials.get_client_credential(session, by=by, credential_id=credential_id)
    return Answer(body=schemas.ClientCredentialBody.of(found))


@routes.acts("/client-credentials/<id:credential_id>/revoke", schemas.ClientCredentialBody)
def revoke_client_credential(call: Call, credential_id: UUID) -> Answer:
    """Revoke a client secret, and every token exchanged for it."""
    by = call.actor
    with call.services.database.transaction() as session:
        revoked = client_credentials.revoke_client_credential(session, by=by, credential_id=credential_id)
    return Answer(body=schemas.ClientCredentialBody.of(revoked))
