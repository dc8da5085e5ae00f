"""The type of settings that hold a Postgres URL."""

from typing import Annotated

from pydantic import AfterValidator


def with_driver(url: str) -> str:
    """Return the URL in the form for psycopg2. Raises ValueError unless the scheme is postgres or postgresql."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.split("+")[0] not in ("postgres", "postgresql"):
        raise ValueError("must begin with postgresql://")
    return f"postgresql+psycopg2://{rest}"


PostgresAddress = Annotated[str, AfterValidator(with_driver)]
