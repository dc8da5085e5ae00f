"""Routes of distributions, and of the attributions that they create."""

from uuid import UUID

from shared.errors import PermissionDenied, ValidationFailed
from shared.identity.access.claims import ReportedCaller
from shared.identity.directory import distributions
from shared.identity.errors import OrganizationSuspended, TargetDisabled
from shared.identity.token_endpoint import attribution_minting
from web.framework.administration import NO_STORE, ORGANIZATION, AdministrationRoutes, created
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.identity import distribution_schemas as schemas

routes = AdministrationRoutes("distributions")


@routes.creates(
    "/organizations/<id:organization_id>/distributions",
    schemas.NewDistribution,
    schemas.CreatedDistribution,
    summary="Create a distribution with its token and webhook secret, returned only once",
)
def create_distribution(call: RequestContext, organization_id: UUID) -> JsonResponse:
    body: schemas.NewDistribution = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        made = distributions.create_distribution(
            session,
            call.services.settings,
            actor=actor,
            organization_id=organization_id,
            name=body.name,
            networks=body.networks,
            principal_identity_id=body.principal_identity_id,
            deployment_id=body.deployment_id,
            media_retention_days=body.media_retention_days,
            routes_messages=body.routes_messages,
        )
    shown = schemas.CreatedDistribution.with_secret(
        made.distribution, token=made.token.value, webhook_secret=made.webhook_secret.value
    )
    return created(call, shown, f"/distributions/{made.distribution.id}")


routes.lists(
    f"{ORGANIZATION}/distributions",
    distributions.list_distributions,
    schemas.DistributionPage,
    summary="List the distributions of an organization",
)
distribution = routes.resource("/distributions/<id:distribution_id>", schemas.DistributionBody)
distribution.reads("read_distribution", distributions.get_distribution, summary="Get a distribution")


@routes.changes(
    "PATCH",
    "/distributions/<id:distribution_id>",
    schemas.ChangedDistribution,
    schemas.DistributionBody,
    summary="Update a distribution; stored media keeps its deadline",
)
def update_distribution(call: RequestContext, distribution_id: UUID) -> JsonResponse:
    body: schemas.ChangedDistribution = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        changed = distributions.update_distribution(
            session,
            actor=actor,
            distribution_id=distribution_id,
            name=body.name,
            networks=body.networks,
            media_retention_days=body.media_retention_days,
            routes_messages=body.routes_messages,
        )
    return JsonResponse(body=schemas.DistributionBody.of(changed))


distribution.acts(
    "disable",
    distributions.disable_distribution,
    summary="Disable a distribution: its token and attributions are refused until it is enabled",
)
distribution.acts("enable", distributions.enable_distribution, summary="Enable a disabled distribution")


@routes.administers(
    "POST",
    "/distributions/<id:distribution_id>/rotate-token",
    {200: schemas.RotatedToken},
    ValidationFailed,
    summary="Rotate a distribution's token, returned only once; the old one stays valid for the overlap",
    query=schemas.RotationQuery,
)
def rotate_distribution_token(call: RequestContext, distribution_id: UUID) -> JsonResponse:
    actor = call.actor
    with call.services.database.transaction() as session:
        token = distributions.rotate_distribution_token(
            session, actor=actor, distribution_id=distribution_id, overlap_seconds=call.query.overlap_seconds
        )
    # The secret is returned only once, so no cache may keep the response.
    return JsonResponse(body=schemas.RotatedToken(token=token.value), headers=NO_STORE)


@routes.administers(
    "POST",
    "/distributions/<id:distribution_id>/rotate-webhook-secret",
    {200: schemas.RotatedWebhookSecret},
    ValidationFailed,
    summary="Rotate a webhook secret, returned only once; the old one stays valid for the overlap",
    query=schemas.RotationQuery,
)
def rotate_webhook_secret(call: RequestContext, distribution_id: UUID) -> JsonResponse:
    actor = call.actor
    with call.services.database.transaction() as session:
        secret = distributions.rotate_webhook_secret(
            session,
            call.services.settings,
            actor=actor,
            distribution_id=distribution_id,
            overlap_seconds=call.query.overlap_seconds,
        )
    return JsonResponse(body=schemas.RotatedWebhookSecret(webhook_secret=secret.value), headers=NO_STORE)


@routes.route(
    "POST",
    "/oauth/attributions",
    summary="Create an attribution for a request that a distribution routes to its deployment",
    description=(
        "The header names the distribution's receiving identity, deployment and organization; the "
        "request sets only the reported message, channel and sender. It is valid for that deployment "
        "alone."
    ),
    authentication=Authentication.DISTRIBUTION,
    body=schemas.NewAttribution,
    responses={201: schemas.AttributionBody},
    errors=(
        PermissionDenied,
        OrganizationSuspended,
        TargetDisabled,
    ),
)
def mint_attribution(call: RequestContext) -> JsonResponse:
    body: schemas.NewAttribution = call.read_body()
    reported = body.reported_caller
    minted = attribution_minting.mint_attribution(
        call.services.signing_keys,
        call.services.settings,
        # Pass the distribution's credential and no caller: a distribution acts for no identity, and only
        # states for whom its deployment works.
        call.credential,
        message_id=body.message_id,
        channel=body.channel,
        reported_caller=ReportedCaller(id=reported.id, display=reported.display) if reported else None,
    )
    shown = schemas.AttributionBody(
        attribution=minted.value, transaction_id=minted.transaction_id, expires_at=minted.expires_at
    )
    return JsonResponse(body=shown, status=201, headers=NO_STORE)
