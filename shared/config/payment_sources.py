"""The type of an entry of the setting PAYMENT_SOURCES, which describes one payment system."""

import base64
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

SECRET_PREFIX = "whsec_"  # noqa: S105 (how a secret begins, not one)
MINIMUM_SECRET_CHARACTERS = 16


class PaymentSource(BaseModel):
    """A payment system that adds credits by signed events: its signature scheme, secrets and exchange rates.

    Two secrets are accepted during a rotation. `credits_per_unit` maps a currency to the credits for the currency's
    smallest unit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["stripe", "standard"]
    secrets: Annotated[tuple[SecretStr, ...], Field(min_length=1, max_length=2)]
    credits_per_unit: dict[
        Annotated[str, Field(pattern=r"^[a-z]{3}$")],
        Annotated[str, Field(pattern=r"^(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,6})?$")],
    ] = {}

    @model_validator(mode="after")
    def _has_usable_secrets(self) -> Self:
        """Check that each secret is long enough to protect the signature. Raises ValueError."""
        for secret in self.secrets:
            plain = secret.get_secret_value()
            # Check the length of the decoded bytes and not of the text: Standard Webhooks signs with the decoded
            # bytes.
            if self.kind == "standard":
                plain = base64.b64decode(plain.removeprefix(SECRET_PREFIX), validate=True).decode("latin-1")
            if len(plain) < MINIMUM_SECRET_CHARACTERS:
                raise ValueError(f"a secret is shorter than {MINIMUM_SECRET_CHARACTERS} characters")
        return self
