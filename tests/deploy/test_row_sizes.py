"""The runbook's row sizes are those of the current tables."""

import re
from pathlib import Path

from deploy.embedded.postgres import EmbeddedPostgres
from tests.benchmarks.row_sizes import SHOWN, measure

ROOT = Path(__file__).parents[2]
COUNT = 4000


def test_the_runbook_says_what_a_row_of_each_kept_table_takes(
    postgres_server: EmbeddedPostgres, database_url: str
) -> None:
    page = (ROOT / "deploy" / "README.md").read_text()
    (sentence,) = re.findall(r"Bytes of a row with its indexes[^:]*:(.*?)\. ", page, re.DOTALL)
    stated = {name: int(size) for name, size in re.findall(r"`(\w+)`\s(\d+)", sentence)}
    assert set(stated) == set(SHOWN)
    url = postgres_server.migrations_url(database_url.rpartition("/")[2].partition("?")[0])
    found = {name: size for name, size, _ in measure(url, COUNT)}
    assert {name: size for name, size in found.items() if not 0.6 < size / stated[name] < 1.6} == {}
