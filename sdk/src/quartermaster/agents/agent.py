"""The agent: its name, skills and extensions, and the A2A 1.0 server for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from quartermaster.agents.extensions import Extension
from quartermaster.agents.skills import Skill, describe_skill

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from quartermaster.agents.connection import Connection

THREADS = 64
SHUTDOWN_SECONDS = 20  # for running requests, after a stop signal
FILE_ARTIFACT_DESCRIPTION = (
    "Artifacts that are stored as files carry the file's id, exact version, digest and deadline."
)
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Agent:
    """An agent. `skill` adds functions to it; `serve` or `app` serves it.

    Missing arguments come from `SERVICE_BASE_URL`, `SERVICE_CLIENT_ID` and `SERVICE_CLIENT_SECRET`. Set `issuer` to the
    service's public address if the agent uses another address as `base_url`.
    """

    def __init__(
        self,
        name: str,
        description: str,
        *,
        version: str = "1.0.0",
        extensions: Iterable[Extension | str] = (),
        base_url: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        issuer: str | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.version = version
        self.extensions = tuple(Extension(at) if isinstance(at, str) else at for at in extensions)
        self.skills: dict[str, Skill] = {}
        self._credentials = {
            "base_url": base_url,
            "client_id": client_id,
            "client_secret": client_secret,
            "issuer": issuer,
        }

    @overload
    def skill(self, function: _Function, /) -> _Function: ...

    @overload
    def skill(
        self,
        /,
        *,
        id: str | None = ...,
        name: str | None = ...,
        tags: Sequence[str] = ...,
        examples: Sequence[str] = ...,
        input_modes: Sequence[str] = ...,
        output_modes: Sequence[str] = ...,
    ) -> Callable[[_Function], _Function]: ...

    def skill(
        self,
        function: Any = None,
        /,
        *,
        id: str | None = None,  # noqa: A002 - the card's word
        name: str | None = None,
        tags: Sequence[str] = (),
        examples: Sequence[str] = (),
        input_modes: Sequence[str] = ("text/plain",),
        output_modes: Sequence[str] = ("text/plain",),
    ) -> Any:
        """Add a function as a skill. Its docstring is the description; its parameters name its arguments.

        It may be a function or a generator, `async` or not, and returns or yields text, JSON values, `Artifact`,
        `Path`, `Status` or `Ask`. The first skill handles messages without a `skillId` in their metadata. Raises
        ValueError for a repeated id, and TypeError for an unknown parameter.
        """

        def add(function: _Function) -> _Function:
            skill = describe_skill(
                function,
                id=id,
                name=name,
                tags=tags,
                examples=examples,
                input_modes=input_modes,
                output_modes=output_modes,
            )
            if skill.id in self.skills:
                raise ValueError(f"The agent already has a skill {skill.id!r}; pass another id.")
            self.skills[skill.id] = skill
            return function

        return add if function is None else add(function)

    def app(self, *, url: str | None = None, is_anonymous: bool = False, threads: int = THREADS) -> Starlette:
        """Return the ASGI application; needs the extra `agents`.

        `url` is the agent's address in its card; by default the address of the card's request. `is_anonymous` accepts
        requests without the service's token, for development only. `threads` limits the functions that run at a time.
        Raises ValueError without a skill, and ConfigurationError without the deployment's credentials.
        """
        # Imported here: a2a-sdk takes half a second, which a script that only declares an agent need not wait for.
        from quartermaster.agents.application import make_application
        from quartermaster.agents.cards import compose_card
        from quartermaster.agents.connection import Connection

        if not self.skills:
            raise ValueError("The agent has no skill; add a function with @agent.skill.")
        connection = Connection(**self._credentials)
        if not is_anonymous:
            connection.require_deployment()
        declared = self._declared(connection)
        card = compose_card(
            name=self.name,
            description=self.description,
            version=self.version,
            skills=self.skills.values(),
            extensions=declared,
            is_anonymous=is_anonymous,
        )
        return make_application(
            card,
            skills=self.skills,
            extensions=declared,
            connection=connection,
            url=url,
            is_anonymous=is_anonymous,
            threads=threads,
        )

    def _declared(self, connection: Connection) -> tuple[Extension, ...]:
        stored = Extension(connection.file_artifact_uri, FILE_ARTIFACT_DESCRIPTION)
        own = (stored,) if connection.is_configured else ()
        # By URI: a declaration of the agent replaces that of the SDK.
        return tuple({at.uri: at for at in (*own, *self.extensions)}.values())

    def serve(self, *, host: str = "127.0.0.1", port: int = 8000, **more: Any) -> None:
        """Serve the agent with uvicorn until a stop signal; `more` are arguments of `app`."""
        serve(self, host=host, port=port, **more)


def serve(agent: Agent, *, host: str = "127.0.0.1", port: int = 8000, **more: Any) -> None:
    """Serve an agent with uvicorn until a stop signal; `more` are arguments of `Agent.app`."""
    import uvicorn

    uvicorn.run(
        agent.app(**more),
        host=host,
        port=port,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        server_header=False,
    )
