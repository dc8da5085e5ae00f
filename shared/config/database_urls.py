"""Addresses of Postgres as the settings take them, with the driver that we use."""

from typing import Annotated

from pydantic import AfterValidator


def with_driver(url: str) -> str:
    """Give the address for psycopg2. Raises ValueError for another server's."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.split("+")[0] not in ("postgres", "postgresql"):
        raise ValueError("must begin with postgresql://")
    return f"postgresql+psycopg2://{rest}"


PostgresAddress = Annotated[str, AfterValidator(with_driver)]
