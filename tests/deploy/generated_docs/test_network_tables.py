"""The networks' README has the table that their declarations generate."""

from deploy.generated_docs import network_tables
from shared.media.networks.registry import NETWORKS


def test_the_readme_is_what_make_networks_writes() -> None:
    assert network_tables.render() == network_tables.README.read_text()


def test_network_table_has_the_header_and_settings_of_every_network() -> None:
    table = network_tables.render().partition(network_tables.BEGIN)[2].partition(network_tables.END)[0]
    rows = {row.split("`")[1]: row for row in table.splitlines()[2:]}
    assert list(rows) == list(NETWORKS)
    for name, network in NETWORKS.items():
        for shown in (network.signature.header, *network.signature.settings):
            assert f"`{shown}`" in rows[name]
