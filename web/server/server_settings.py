"""Settings of the HTTP server, which no other process reads.

If a setting is invalid, the start ends with an error that says how to correct it.
"""

from typing import Annotated

from pydantic import Field, NonNegativeFloat, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.config.settings_errors import SettingsInvalid

Number = Annotated[int, Field(ge=1, le=1_000_000)]
Seconds = Annotated[int, Field(ge=1, le=86_400)]
ReceivingSeconds = Annotated[float, Field(gt=0, le=3600)]


class ServerSettings(BaseSettings):
    """The server settings that `deploy/environment.example` documents."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True)

    port: Annotated[int, Field(ge=1, le=65_535)] = 8080
    web_bind: str = ""
    web_processes: Annotated[int, Field(ge=1, le=1024)] = 2
    web_threads: Annotated[int, Field(ge=1, le=32_768)] = 448
    web_connections: Number = 8000
    web_head_seconds: ReceivingSeconds = 5
    web_small_body_seconds: ReceivingSeconds = 10
    web_gathered_bytes: Annotated[int, Field(ge=1 << 16, le=1 << 40)] = 64 << 20
    slot_wait_seconds: NonNegativeFloat = 5.0
    web_drain_seconds: Seconds = 30
    web_keepalive_seconds: Seconds = 15
    web_send_seconds: Seconds = 60


def load_server_settings() -> ServerSettings:
    """Read the settings from the environment. Raises SettingsInvalid."""
    try:
        return ServerSettings()
    except ValidationError as error:
        raise SettingsInvalid.of(error, ServerSettings.model_fields) from None
