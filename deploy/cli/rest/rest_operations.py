"""The REST operation of each administrative command that can run over REST.

A line is `command: METHOD path`. Variables of the path, and the names after `?`, are parameters of the command. The
other parameters go to the query of a GET, or to the JSON body of a POST, PUT or PATCH, under their wire names. Commands
that need another mapping have a function in `deploy/cli/rest/rest_parameters.py`. A command that is not listed works
over the database only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deploy.cli.rest.rest_parameters import PREPARED, SHOWN, Parameters

_ORGANIZATION = "/admin/organizations/{organization_id}"
_CREDITS = f"{_ORGANIZATION}/credits"
_DEPLOYMENT = "/admin/deployments/{deployment_id}"
_DISTRIBUTION = "/admin/distributions/{distribution_id}"
_SCHEDULE = f"{_DEPLOYMENT}/schedules/{{resource_id}}"

# The table is text and not constructor calls, so that more than a hundred routes stay readable. A test compares the
# routes with the OpenAPI document.
_LINES = f"""
organizations create: POST /admin/organizations
organizations list: GET /admin/organizations
organizations show: GET /admin/organizations/{{resource_id}}
organizations rename: PATCH {_ORGANIZATION}
organizations suspend: POST /admin/organizations/{{resource_id}}/suspend
organizations resume: POST /admin/organizations/{{resource_id}}/resume
members add: POST {_ORGANIZATION}/members
members list: GET {_ORGANIZATION}/members
members change-role: PATCH {_ORGANIZATION}/members/{{user_id}}
members remove: DELETE {_ORGANIZATION}/members/{{user_id}}
invitations create: POST {_ORGANIZATION}/invitations
invitations list: GET {_ORGANIZATION}/invitations
invitations show: GET /admin/invitations/{{resource_id}}
invitations revoke: POST /admin/invitations/{{resource_id}}/revoke
users create: POST /admin/users
users list: GET /admin/users
users show: GET /admin/users/{{resource_id}}
users disable: POST /admin/users/{{resource_id}}/disable
users enable: POST /admin/users/{{resource_id}}/enable
api-keys issue: POST /admin/api-keys
api-keys list: GET /admin/api-keys
api-keys list-bound: GET {_ORGANIZATION}/api-keys
api-keys show: GET /admin/api-keys/{{resource_id}}
api-keys revoke: POST /admin/api-keys/{{resource_id}}/revoke
audit-events list: GET {_ORGANIZATION}/audit-events
identities create: POST {_ORGANIZATION}/identities
identities list: GET {_ORGANIZATION}/identities
identities show: GET /admin/identities/{{resource_id}}
identities disable: POST /admin/identities/{{resource_id}}/disable
identities enable: POST /admin/identities/{{resource_id}}/enable
role-bindings bind-identity: POST {_ORGANIZATION}/role-bindings
role-bindings bind-user: POST {_ORGANIZATION}/role-bindings
role-bindings list: GET {_ORGANIZATION}/role-bindings
role-bindings show: GET /admin/role-bindings/{{resource_id}}
role-bindings unbind: DELETE /admin/role-bindings/{{resource_id}}
distributions create: POST {_ORGANIZATION}/distributions
distributions list: GET {_ORGANIZATION}/distributions
distributions show: GET /admin/distributions/{{resource_id}}
distributions update: PATCH {_DISTRIBUTION}
distributions disable: POST /admin/distributions/{{resource_id}}/disable
distributions enable: POST /admin/distributions/{{resource_id}}/enable
distributions rotate-token: POST {_DISTRIBUTION}/rotate-token?overlap_seconds
distributions rotate-webhook-secret: POST {_DISTRIBUTION}/rotate-webhook-secret?overlap_seconds
networks set: PUT {_DISTRIBUTION}/networks/{{network}}
networks show: GET {_DISTRIBUTION}/networks/{{network}}
networks remove: DELETE {_DISTRIBUTION}/networks/{{network}}
networks install: POST {_DISTRIBUTION}/networks/slack/installations
networks route: PUT {_DISTRIBUTION}/networks/{{network}}/accounts/{{account}}
networks list-routes: GET {_DISTRIBUTION}/networks/{{network}}/accounts
networks unroute: DELETE {_DISTRIBUTION}/networks/{{network}}/accounts/{{account}}
notifications set-endpoint: PUT {_DISTRIBUTION}/notification-endpoint
notifications show-endpoint: GET {_DISTRIBUTION}/notification-endpoint
notifications remove-endpoint: DELETE {_DISTRIBUTION}/notification-endpoint
notifications list: GET {_DISTRIBUTION}/notifications
notifications resend: POST {_DISTRIBUTION}/notifications/{{notification_id}}/resend
notifications resend-dead: POST {_DISTRIBUTION}/notifications/resend-dead
notifications set-organization-endpoint: PUT {_ORGANIZATION}/notification-endpoint
notifications show-organization-endpoint: GET {_ORGANIZATION}/notification-endpoint
notifications remove-organization-endpoint: DELETE {_ORGANIZATION}/notification-endpoint
notifications list-organization: GET {_ORGANIZATION}/notifications
notifications resend-organization: POST {_ORGANIZATION}/notifications/{{notification_id}}/resend
notifications replay: POST {_DISTRIBUTION}/notifications/replay
notifications replay-organization: POST {_ORGANIZATION}/notifications/replay
imports list: GET /distributions/{{distribution_id}}/media
imports show: GET /distributions/{{distribution_id}}/media/{{import_id}}
imports retry: POST /distributions/{{distribution_id}}/media/{{import_id}}/retry
imports retry-all: POST /distributions/{{distribution_id}}/media/retry
read-grants list: GET /files/{{file_id}}/grants
read-grants revoke: DELETE /files/{{file_id}}/grants/{{grant_id}}
deployments create: POST {_ORGANIZATION}/deployments
deployments list: GET {_ORGANIZATION}/deployments
deployments show: GET /admin/deployments/{{resource_id}}
deployments disable: POST /admin/deployments/{{resource_id}}/disable
deployments enable: POST /admin/deployments/{{resource_id}}/enable
deployments change-daemon: PUT {_DEPLOYMENT}/daemon-identity
repositories set: PUT {_DEPLOYMENT}/repository
repositories show: GET /admin/deployments/{{resource_id}}/repository
repositories remove: DELETE /admin/deployments/{{resource_id}}/repository
endpoints set: PUT {_DEPLOYMENT}/endpoint
endpoints show: GET /admin/deployments/{{resource_id}}/endpoint
endpoints remove: DELETE /admin/deployments/{{resource_id}}/endpoint
endpoints check: POST {_DEPLOYMENT}/endpoint/check
versions deploy: POST {_DEPLOYMENT}/versions
versions list: GET {_DEPLOYMENT}/versions
versions show: GET /admin/versions/{{resource_id}}
versions activate: POST /admin/versions/{{resource_id}}/activate
versions revoke: POST /admin/versions/{{resource_id}}/revoke
client-credentials issue: POST {_DEPLOYMENT}/client-credentials
client-credentials list: GET {_DEPLOYMENT}/client-credentials
client-credentials show: GET /admin/client-credentials/{{resource_id}}
client-credentials revoke: POST /admin/client-credentials/{{resource_id}}/revoke
behaviors create: POST {_DEPLOYMENT}/behaviors
behaviors list: GET {_DEPLOYMENT}/behaviors
behaviors show: GET /admin/behaviors/{{resource_id}}
behaviors make-default: POST /admin/behaviors/{{resource_id}}/make-default
behaviors remove: DELETE /admin/behaviors/{{resource_id}}
schedules create: POST {_DEPLOYMENT}/schedules
schedules list: GET {_DEPLOYMENT}/schedules
schedules show: GET {_SCHEDULE}
schedules disable: POST {_SCHEDULE}/disable
schedules enable: POST {_SCHEDULE}/enable
schedules delete: DELETE {_SCHEDULE}
schedules runs: GET {_DEPLOYMENT}/schedules/{{schedule_id}}/runs
tasks list: GET {_ORGANIZATION}/tasks
signing-keys list: GET /admin/signing-keys
signing-keys revoke: POST /admin/signing-keys/{{kid}}/revoke
rotate-keys: POST /admin/signing-keys/rotate
credits show: GET {_CREDITS}
credits list-entries: GET {_CREDITS}/entries
credits list-holds: GET {_CREDITS}/holds
credits list-statements: GET {_CREDITS}/statements
credits show-statement: GET {_CREDITS}/statements/{{month}}
credits list-storage: GET {_ORGANIZATION}/storage-usage
credits top-up: POST {_CREDITS}/top-ups
credits adjust: POST {_CREDITS}/adjustments
credits set-policy: PUT {_ORGANIZATION}/credit-policy
credits suspend: POST {_CREDITS}/suspend
credits resume: POST {_CREDITS}/resume
budgets create: POST {_ORGANIZATION}/budgets
budgets list: GET {_ORGANIZATION}/budgets
budgets show: GET {_ORGANIZATION}/budgets/{{budget_id}}
budgets set-amount: PATCH {_ORGANIZATION}/budgets/{{budget_id}}
budgets delete: DELETE {_ORGANIZATION}/budgets/{{budget_id}}
budgets set-models: PUT {_ORGANIZATION}/api-keys/{{key_id}}/models
budgets show-models: GET {_ORGANIZATION}/api-keys/{{key_id}}/models
budgets remove-models: DELETE {_ORGANIZATION}/api-keys/{{key_id}}/models
usage: GET /v1/usage
usage-records list: GET /v1/usage/records
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A route. `query` names the parameters that are sent in the query although the method has a body."""

    method: str
    path: str
    query: frozenset[str] = frozenset()
    prepare: Callable[[Parameters], Parameters] = lambda given: given
    show: Callable[[Parameters], Parameters] = lambda response: response

    @property
    def is_snake_case(self) -> bool:
        """Return whether the route uses snake_case names, which is the style of OpenAI's API."""
        return self.path.startswith("/v1/")


def _operation(command: str, line: str) -> Operation:
    method, _, target = line.strip().partition(" ")
    path, _, query = target.partition("?")
    return Operation(
        method=method,
        path=path,
        query=frozenset(query.split("&") if query else ()),
        prepare=PREPARED.get(command, lambda given: given),
        show=SHOWN.get(command, lambda response: response),
    )


OPERATIONS: Mapping[str, Operation] = {
    command: _operation(command, line)
    for command, _, line in (each.partition(":") for each in _LINES.strip().splitlines())
}
