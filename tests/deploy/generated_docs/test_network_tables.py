"""The networks' README has the table that their declarations generate."""

from deploy.generated_docs import network_tables
from shared.media.networks.registry import NETWORKS


def test_the_readme_is_what_make_networks_writes() -> None:
    assert network_tables.render() == network_tables.README.read_text()


def test_its_table_has_a_row_of_every_network_with_its_header_and_settings() -> None:
    table = network_tables.render().partition(network_tables.BEGIN)[2].partition(network_tables.END)[0]
    rows = {row.split("`")[1]: row for row in table.splitlines()[2:]}
    assert list(rows) == list(NETWORKS)
    for name, network in NETWORKS.items():
        for shown in (network.signature.header, *network.signature.settings):
            assert f"`{shown}`" in rows[name]
