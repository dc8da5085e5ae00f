"""JSON schemas of a distribution's settings for messaging networks."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Self

from pydantic import Field

from shared.identity.directory.distributions import DEFAULT_OVERLAP_SECONDS, MAX_OVERLAP_SECONDS
from shared.media.network_setup.network_administration import NetworkSettings
from shared.media.networks.registry import NETWORKS
from web.http.schemas import ResponseModel
from web.http.wire_types import Between, Id, JsonCount, RequestModel, UtcTime

MAX_SETTINGS = 20
MAX_VALUE_CHARACTERS = 2048


# Generate the description, so that a new network needs no change here.
def _describe() -> str:
    networks = (
        f"`{network.name}`: "
        + ", ".join(
            f"`{setting.name}`" + ("" if setting.is_required and setting.default is None else " (optional)")
            for setting in network.settings
        )
        for network in NETWORKS.values()
    )
    return "Values by name. " + "; ".join(networks) + "."


Value = Annotated[str, Field(min_length=1, max_length=MAX_VALUE_CHARACTERS)]


class NewNetworkSettings(RequestModel):
    """All settings of a distribution for one network."""

    settings: Annotated[Mapping[str, Value], Field(max_length=MAX_SETTINGS, description=_describe())]
    overlap_seconds: Annotated[
        JsonCount,
        Between(minimum=0, maximum=MAX_OVERLAP_SECONDS),
        Field(description="How long a replaced signing secret stays valid, in seconds."),
    ] = DEFAULT_OVERLAP_SECONDS


class SetValueBody(ResponseModel):
    """A setting that has a value; the value itself is never returned."""

    name: str
    last4: str = Field(description="The value's last four characters.")
    previous_expires_at: UtcTime | None = Field(
        description="Until when webhooks signed with the replaced value are also accepted."
    )
    changed_at: UtcTime


class NetworkSettingsBody(ResponseModel):
    """The settings of a distribution for one network."""

    distribution_id: Id
    network: str
    webhook_url: str = Field(description="The webhook address to register at the network.")
    settings: Sequence[SetValueBody]

    @classmethod
    def at(cls, base_url: str, shown: NetworkSettings) -> Self:
        """Return the settings with their webhook address below `base_url`."""
        address = f"{base_url}/distributions/{shown.distribution_id}/webhooks/{shown.network}"
        return cls(
            distribution_id=shown.distribution_id,
            network=shown.network,
            webhook_url=address,
            settings=[SetValueBody.of(one) for one in shown.settings],
        )
