"""Routes of deployments, their versions, repositories and client secrets."""

from uuid import UUID

from shared.identity.credentials import client_credentials
from shared.identity.directory import deployments, repositories, versions
from shared.identity.errors import AlreadyExists, GrantExceedsGranter, TooManyLive, VersionRevoked
from web.framework.administration import ORGANIZATION, AdministrationRoutes, created
from web.framework.calls import JsonResponse, RequestContext
from web.identity import agent_schemas as schemas

routes = AdministrationRoutes("deployments")


@routes.creates(
    "/organizations/<id:organization_id>/deployments",
    schemas.NewDeployment,
    schemas.CreatedDeployment,
    GrantExceedsGranter,
    summary="Create a deployment with its Daemon Identity, first version and client secret, returned only once",
)
def create_deployment(call: RequestContext, organization_id: UUID) -> JsonResponse:
    body: schemas.NewDeployment = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        made = deployments.create_deployment(
            session,
            actor=actor,
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


routes.lists(
    f"{ORGANIZATION}/deployments",
    deployments.list_deployments,
    schemas.DeploymentPage,
    summary="List the deployments of an organization",
)
deployment = routes.resource("/deployments/<id:deployment_id>", schemas.DeploymentBody)
deployment.reads("read_deployment", deployments.get_deployment, summary="Get a deployment")
deployment.acts(
    "disable",
    deployments.disable_deployment,
    summary="Disable a deployment: its tokens and secrets are refused until it is enabled",
)
deployment.acts("enable", deployments.enable_deployment, summary="Enable a disabled deployment")


@routes.changes(
    "PUT",
    "/deployments/<id:deployment_id>/daemon-identity",
    schemas.NewDaemon,
    schemas.DeploymentBody,
    GrantExceedsGranter,
    AlreadyExists,
    summary="Replace the Daemon Identity of a deployment, its service account",
    description="Files of the previous Daemon Identity stay its own. Tokens issued before stay valid.",
)
def change_daemon(call: RequestContext, deployment_id: UUID) -> JsonResponse:
    body: schemas.NewDaemon = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        changed = deployments.change_daemon(
            session, actor=actor, deployment_id=deployment_id, daemon_identity_id=body.daemon_identity_id
        )
    return JsonResponse(body=schemas.DeploymentBody.of(changed))


@routes.changes(
    "PUT",
    "/deployments/<id:deployment_id>/repository",
    schemas.NewRepository,
    schemas.RepositoryBody,
    repositories.NoGitHubDeployment,
    summary="Replace the repository of a GitHub deployment; its workflows get access tokens without a secret",
    description="Revokes tokens of the previous repository. Omitted fields match anything; the first token sets ids.",
)
def put_repository(call: RequestContext, deployment_id: UUID) -> JsonResponse:
    body: schemas.NewRepository = call.read_body()
    actor = call.actor
    # Pass all fields at once: an omitted field matches any value, and so no earlier restriction stays
    # unnoticed.
    draft = repositories.RepositoryDraft(**body.model_dump())
    with call.services.database.transaction() as session:
        shown = repositories.put_repository(session, actor=actor, deployment_id=deployment_id, draft=draft)
    return JsonResponse(body=schemas.RepositoryBody.of(shown))


repository = routes.resource("/deployments/<id:deployment_id>/repository", schemas.RepositoryBody)
repository.reads(
    "read_repository", repositories.get_repository, summary="Get the repository of a GitHub deployment"
)
repository.removes(
    repositories.remove_repository,
    summary="Delete the repository of a deployment, and revoke the tokens of its workflows",
)


@routes.creates(
    "/deployments/<id:deployment_id>/versions",
    schemas.NewVersion,
    schemas.DeployedVersionBody,
    summary="Create a version and make it the active one",
)
def deploy_version(call: RequestContext, deployment_id: UUID) -> JsonResponse:
    body: schemas.NewVersion = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        made = versions.deploy_version(session, actor=actor, deployment_id=deployment_id, label=body.label)
    return created(call, schemas.DeployedVersionBody.of(made), f"/versions/{made.id}")


routes.lists(
    "/deployments/<id:deployment_id>/versions",
    versions.list_versions,
    schemas.DeployedVersionPage,
    # `list_versions` lists the versions of a file, and an operation's id must be unique, so use another name.
    name="list_deployed_versions",
    summary="List the versions of a deployment",
)
deployed_version = routes.resource("/versions/<id:version_id>", schemas.DeployedVersionBody)
deployed_version.reads("read_deployed_version", versions.get_version, summary="Get a version of a deployment")
deployed_version.acts(
    "activate",
    versions.activate_version,
    VersionRevoked,
    summary="Activate an earlier version that is not revoked",
)
deployed_version.acts("revoke", versions.revoke_version, summary="Revoke a version with all its tokens")


@routes.creates(
    "/deployments/<id:deployment_id>/client-credentials",
    schemas.NewClientCredential,
    schemas.IssuedClientCredential,
    TooManyLive,
    summary="Create another client secret, returned only once; two may be live, for rotation",
)
def issue_client_credential(call: RequestContext, deployment_id: UUID) -> JsonResponse:
    body: schemas.NewClientCredential = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        issued = client_credentials.issue_client_credential(
            session, actor=actor, deployment_id=deployment_id, expires_at=body.expires_at
        )
    shown = schemas.IssuedClientCredential.with_secret(issued.credential, client_secret=issued.secret.value)
    return created(call, shown, f"/client-credentials/{issued.credential.id}")


routes.lists(
    "/deployments/<id:deployment_id>/client-credentials",
    client_credentials.list_client_credentials,
    schemas.ClientCredentialPage,
    summary="List the client credentials of a deployment, without their secrets",
)
client_credential = routes.resource("/client-credentials/<id:credential_id>", schemas.ClientCredentialBody)
client_credential.reads(
    "read_client_credential",
    client_credentials.get_client_credential,
    summary="Get a client credential, without its secret",
)
client_credential.acts(
    "revoke",
    client_credentials.revoke_client_credential,
    summary="Revoke a client credential with all tokens exchanged for it",
)
