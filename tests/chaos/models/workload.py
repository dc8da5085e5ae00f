"""The workload of models."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from shared.identity.access.roles import Role
from tests.chaos.background_work import CREDITS
from tests.chaos.installation import Installation
from tests.chaos.models.catalog import offer
from tests.chaos.models.clients import CallLog, ModelClient, Payer
from tests.chaos.models.reconciliation import Reconciliation
from tests.chaos.workload import Person, Workload
from tests.support.models.catalog_text import FAKE, FAKE_RESPONSES, model_text
from tests.support.models.upstreams import FakeUpstream

CLIENTS = 6
PLENTY = {"amount": "1000000", "reference": "plenty"}
CATALOG = (
    '[providers.fake]\nbase_url = "ADDRESS"\nidle_timeout_seconds = 3.0\n'
    '[providers.gone]\nbase_url = "http://127.0.0.1:9/v1"\n'
    + model_text("fake/chat", FAKE, retries=0, deadline_seconds=20.0)
    + model_text(
        "fake/responses", FAKE_RESPONSES, prompt="1.5", completion="2.25", retries=1, deadline_seconds=20.0
    )
    + model_text(
        "fake/second",
        FAKE.replace("fake", "gone"),
        FAKE,
        prompt="0.7",
        completion="1",
        retries=1,
        deadline_seconds=20.0,
    )
    + model_text("fake/cheap", FAKE, prompt="0", retries=0, deadline_seconds=20.0)
)


class Models(Workload):
    """Calls to models behind a fake upstream with its own records, paid by one rich and one poor organization."""

    workers = {"models": 2, "background": 1, "ledger": 1}  # noqa: RUF012
    waiting = (CREDITS,)

    def __init__(self, installation: Installation, closing: ExitStack) -> None:
        self._installation = installation
        self._upstream = closing.enter_context(FakeUpstream())
        self._log = CallLog()
        offer(installation.stack, CATALOG.replace("ADDRESS", self._upstream.base_url))

    def begin(self) -> Sequence[Person]:
        at = self._installation
        rich, poor = self._rich_payer(), self._make_poor_payer()
        path = f"/admin/organizations/{rich.organization_id}/credits/top-ups"
        rich.owner.request("POST", path, json=PLENTY).raise_for_status()
        payers = (rich, rich, poor)
        return [
            ModelClient(
                at.chance(f"models/{number}"),
                payers[number % len(payers)],
                at.fronts,
                self._log,
                at.retrying_client,
                at.observations,
            )
            for number in range(CLIENTS)
        ]

    def compare(self) -> Iterator[str]:
        at = self._installation
        books = Reconciliation(
            at.stack, self._log.calls, self._upstream.served, family="fake/", loses_reports=at.loses_links
        )
        yield from books.compare(self._log.topped_up)

    def _rich_payer(self) -> Payer:
        at = self._installation
        return Payer(
            api_key=at.credentials["ownerApiKey"],
            owner=at.owner(),
            operator=at.owner(),
            organization_id=str(at.organization_id),
            models=("fake/chat", "fake/responses", "fake/second"),
        )

    def _make_poor_payer(self) -> Payer:
        at = self._installation
        organization_id = at.identity.organization("Poor").id
        person = at.identity.person(organization_id, Role.WORKSPACE_OWNER, bound=True)
        return Payer(
            api_key=person.api_key,
            owner=at.client(person.api_key),
            operator=at.owner(),
            organization_id=str(organization_id),
            models=("fake/cheap",),
            is_poor=True,
        )
