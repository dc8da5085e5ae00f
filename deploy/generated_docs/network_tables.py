"""Generate the table in `shared/media/networks/README.md` from the declarations of the messaging networks."""

from collections.abc import Iterator
from pathlib import Path

from shared.media.networks import registry
from shared.media.networks.base import Network, SettingKind

README = Path(registry.__file__).with_name("README.md")
BEGIN, END = "<!-- Written by `make networks`. -->\n", "<!-- End of what is written. -->\n"


def render() -> str:
    """Return the content that the README should have."""
    before, _, rest = README.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    return "".join((before, BEGIN, *(line + "\n" for line in _rows()), END, after))


def _rows() -> Iterator[str]:
    yield "| Network | Settings | Where the address goes | What proves it |"
    yield "| - | - | - | - |"
    for network in registry.NETWORKS.values():
        proof = f"`{network.signature.header}`: {network.signature.describe()}"
        yield f"| `{network.name}` | {'; '.join(_settings(network))} | {network.callback} | {proof} |"


def _settings(network: Network) -> Iterator[str]:
    for setting in network.settings:
        if setting.kind is SettingKind.ADDRESS:
            continue
        signs = " (**signs**)" if setting.name in network.signature.settings else ""
        optional = "" if setting.is_required else "optionally "
        yield f"{optional}`{setting.name}`{signs}: {setting.description.rstrip('.')}"


if __name__ == "__main__":
    README.write_text(render())
