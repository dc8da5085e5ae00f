"""Organizations for the console tests: empty, with one of everything, with very many, and with hostile names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from secrets import token_bytes
from typing import Any
from uuid import UUID

from sqlalchemy import Table, update

from shared.a2a.endpoint_tables import deployment_endpoints
from shared.a2a.schedules.tables import schedules
from shared.a2a.tables import behaviors, task_events, task_messages, tasks
from shared.credits.amounts import MICRO
from shared.credits.holds import Attribution
from shared.credits.tables import budgets
from shared.credits.usage.rollups import roll_up_usage
from shared.db.database import Database
from shared.deliveries.tables import deliveries
from shared.files.tables import blobs, files, read_grants, references, versions
from shared.identity.access.roles import Role
from shared.identity.directory.deployments import CreatedDeployment
from shared.identity.directory.distributions import CreatedDistribution
from shared.identity.tables import users
from shared.ids import new_id
from shared.media.tables import media_imports
from tests.shared.credits.calls import Calls
from tests.support.data.identity import Person
from tests.support.data.row_factory import plant_all
from tests.support.models.model_service import ModelService

MARKUP = "<img src=x onerror=alert(1)>"
NAMES = (MARKUP, "תיבת דואר של הצוות", "w" * 200, "Claims triage", "Slack support")
FILE_NAMES = (
    f"{MARKUP}.pdf",
    "דוח רבעוני.xlsx",
    f"{'w' * 200}.zip",
    "Quarterly report.pdf",
    "claim-4711.docx",
)
DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class House:
    """An organization's owner, and one resource of each kind that a page's path can name."""

    owner: Person
    named: Mapping[str, str] = field(default_factory=dict)


def make_house(service: ModelService, name: str, count: int) -> House:
    """Create an organization with this many of everything."""
    organization_id = service.identity.organization(name).id
    owner = service.identity.person(organization_id, Role.WORKSPACE_OWNER, bound=bool(count))
    with service.database.transaction() as session:
        chosen = update(users).where(users.c.id == owner.user_id)
        session.execute(chosen.values(active_organization_id=organization_id))
    if not count:
        return House(owner=owner)
    return _Builder(service=service, id=organization_id, owner=owner, count=count).build()


@dataclass(frozen=True, kw_only=True)
class _Builder:
    """Creates the content of one organization."""

    service: ModelService
    id: UUID
    owner: Person
    count: int
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    rows: list[tuple[Table, Mapping[str, Any]]] = field(default_factory=list)

    def build(self) -> House:
        make, few = self.service.identity, min(self.count, len(NAMES))
        principals = [make.principal(self.id, name).id for name in NAMES[:few]]
        agents = [make.deployment(self.id, NAMES[at % few]) for at in range(self.count)]
        distributions = [
            make.distribution(
                self.id, principal_id=principals[at % few], deployment_id=agents[at % few].deployment.id
            )
            for at in range(self.count)
        ]
        self._call(principals)
        self._equip(agents[0])
        self._bring(distributions[0])
        named = {
            "key_id": str(self.owner.api_key_id),
            "deployment_id": str(agents[0].deployment.id),
            "distribution_id": str(distributions[0].distribution.id),
            "file_id": str(self._store(principals)),
            "task_id": str(self._work(agents[0], principals)),
            "budget_id": str(self._limit()),
            "month": f"{self.now:%Y-%m}",
        }
        administrator = Database(self.service.stack.administrator_url.replace("://", "+psycopg2://", 1))
        plant_all(administrator, self.rows)
        administrator.dispose()
        return House(owner=self.owner, named=named)

    def _plant(self, table: Table, **values: Any) -> None:
        self.rows.append((table, values))

    def _call(self, principals: list[UUID]) -> None:
        """Make model calls: four times as many as there are other resources."""
        used = Calls(self.service.database, self.id)
        used.top_up(1000 * MICRO)
        keys = [self.service.identity.person(self.id, bound=True) for _ in range(self.count)]
        for number in range(4 * self.count if self.count > 1 else 1):
            who = Attribution(
                user_id=self.owner.user_id,
                principal_id=principals[number % len(principals)],
                api_key_id=keys[number % len(keys)].api_key_id,
            )
            used.charge(
                700_000 + number * 1000, attribution=who, model=f"acme/{'abcdefgh'[number % 8]}-large"
            )
        used.hold(3_120_000, model="acme/a-large")
        roll_up_usage(self.service.database)

    def _limit(self) -> UUID:
        budget_id = new_id()
        self._plant(
            budgets,
            id=budget_id,
            organization_id=self.id,
            subject_kind="api_key",
            subject_id=self.owner.api_key_id,
            unit="credits",
            period="month",
            amount=10 * MICRO,
            spent=9 * MICRO,
            starts_at=self.now,
        )
        return budget_id

    def _equip(self, agent: CreatedDeployment) -> None:
        """Give an agent behaviors, schedules, and an endpoint with a problem."""
        deployment_id = agent.deployment.id
        for at in range(min(self.count, 20)):
            name = f"{NAMES[at % len(NAMES)]} {at}"
            self._plant(
                behaviors,
                deployment_id=deployment_id,
                name=name,
                kind="script",
                description=name,
                is_default=at == 0,
            )
            self._plant(
                schedules,
                deployment_id=deployment_id,
                name=name,
                cron="0 9 * * 1",
                time_zone="Europe/Berlin",
                message={},
                missed="skip",
                catch_up_limit=1,
                next_at=self.now + DAY,
            )
        self._plant(
            deployment_endpoints,
            deployment_id=deployment_id,
            organization_id=self.id,
            url=f"https://agents.example/{'w' * 150}",
            problem="unreachable",
            checked_at=self.now,
            next_check_at=self.now + 30 * DAY,
        )

    def _bring(self, distribution: CreatedDistribution) -> None:
        """Import media of a network, and let notifications fail for good."""
        distribution_id = distribution.distribution.id
        for at in range(self.count):
            has_failed = at % 2 == 0
            self._plant(
                media_imports,
                id=new_id(),
                distribution_id=distribution_id,
                organization_id=self.id,
                network="slack",
                location={},
                file_name=FILE_NAMES[at % len(FILE_NAMES)],
                state="Failed" if has_failed else "Held",
                code="media_gone" if has_failed else "target_disabled",
                is_ready=False,
                due_at=self.now + 30 * DAY,
                ended_at=self.now if has_failed else None,
                forget_at=self.now + 30 * DAY if has_failed else None,
            )
            self._plant(
                deliveries,
                id=new_id(),
                kind="distribution",
                event="file.expired",
                destination_id=distribution_id,
                organization_id=self.id,
                state="Dead",
                body=b"{}",
                last_code="http_500",
                ended_at=self.now,
            )

    def _store(self, principals: list[UUID]) -> UUID:
        """Store files; one has versions, links and references."""
        ids = [new_id() for _ in range(self.count)]
        for at, file_id in enumerate(ids):
            version_id = self._version(file_id, at, revision=self.count if file_id == ids[-1] else 1)
            self._plant(
                files,
                id=file_id,
                organization_id=self.id,
                payer_id=self.id,
                purpose="AgentArtifact",
                owner_kind="PrincipalIdentity",
                owner_id=principals[at % len(principals)],
                state="Available",
                current_version_id=version_id,
                retention_expires_at=self.now + 20 * DAY if at % 3 else None,
                revision=1,
            )
        for at in range(self.count - 1):
            self._version(ids[-1], at, revision=at + 1)
        for at in range(self.count):
            self._plant(
                read_grants,
                id=new_id(),
                file_id=ids[-1],
                version_id=version_id,
                token_hash=token_bytes(32),
                created_by=principals[0],
                access_expires_at=self.now + DAY,
            )
            kinds = {"kind": "Task", "reference_id": f"{NAMES[at % len(NAMES)]} {at}"}
            self._plant(references, file_id=ids[-1], **kinds)
        return ids[-1]

    def _version(self, file_id: UUID, at: int, *, revision: int) -> UUID:
        version_id = new_id()
        self._plant(
            versions,
            id=version_id,
            file_id=file_id,
            revision=revision,
            file_name=FILE_NAMES[at % len(FILE_NAMES)],
            media_type="application/octet-stream",
            byte_size=1 + 7**at if at < 12 else at,
        )
        self._plant(
            blobs,
            version_id=version_id,
            state="live",
            byte_size=1,
            verified_at=self.now,
        )
        return version_id

    def _work(self, agent: CreatedDeployment, principals: list[UUID]) -> UUID:
        """Create tasks in every state. One is long and waits for the owner's input."""
        states = ("COMPLETED", "FAILED", "WORKING", "CANCELED", "REJECTED", "INPUT_REQUIRED")
        task_id = new_id()
        for at in range(self.count):
            is_opened = at == 0
            self._plant(
                tasks,
                id=task_id if is_opened else new_id(),
                context_id=f"{NAMES[at % len(NAMES)]} {at}",
                organization_id=self.id,
                deployment_id=agent.deployment.id,
                caller_id=self.owner.user_id if is_opened else principals[at % len(principals)],
                principal_id=self.owner.user_id if is_opened else principals[at % len(principals)],
                state="TASK_STATE_INPUT_REQUIRED" if is_opened else f"TASK_STATE_{states[at % len(states)]}",
                status_at=self.now - at * timedelta(minutes=7),
                is_visible=True,
                artifacts=[_artifact(at) for at in range(min(self.count, 3))] if is_opened else None,
            )
        for at in range(2 * self.count):
            self._say(task_id, at)
        return task_id

    def _say(self, task_id: UUID, at: int) -> None:
        role = "ROLE_AGENT" if at % 2 else "ROLE_USER"
        text = f"{MARKUP} **bold** {NAMES[at % len(NAMES)]}\nand a second line, {at}"
        when = {"created_at": self.now + at * timedelta(seconds=1)}
        message = {"messageId": f"m-{at}", "role": role, "parts": [{"text": text}]}
        self._plant(task_messages, task_id=task_id, number=at + 1, message=message, **when)
        state = "TASK_STATE_INPUT_REQUIRED" if at % 2 else "TASK_STATE_WORKING"
        event = {"statusUpdate": {"taskId": str(task_id), "contextId": "c", "status": {"state": state}}}
        self._plant(
            task_events,
            task_id=task_id,
            sequence=at + 1,
            kind="status",
            event=event,
            **when,
        )


def _artifact(at: int) -> Mapping[str, object]:
    return {"artifactId": f"a-{at}", "name": f"{MARKUP} {at}", "parts": [{"text": f"{MARKUP} chunk"}]}
