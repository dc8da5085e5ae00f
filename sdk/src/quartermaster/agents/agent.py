"""The class `Agent`, which has a name, skills and extensions and can be served over A2A 1.0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from quartermaster.agents.extensions import Extension
from quartermaster.agents.skills import Skill, describe_skill

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from quartermaster.agents.connection import Connection

THREADS = 64
SHUTDOWN_SECONDS = 20  # time for running requests to end after a stop signal
FILE_ARTIFACT_DESCRIPTION = (
    "Artifacts that are stored as files carry the file's id, exact version, digest and deadline."
)
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Agent:
    """An agent. `skill` adds a function to the agent. `serve` serves the agent, and `app` returns its ASGI application.

    Values of missing arguments come from the variables `SERVICE_BASE_URL`, `SERVICE_CLIENT_ID` and
    `SERVICE_CLIENT_SECRET`. If `base_url` is not the service's public address, set `issuer` to the public address.
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
        """Add a function as a skill. The function's docstring is the skill's description.

        The names of the function's parameters select its arguments, for example `text` or `files`. The function may be
        a generator, and may be `async`. It returns or yields text, JSON values, `Artifact`, `Path`, `Status` or `Ask`.
        The first skill handles messages that have no `skillId` in their metadata. Raises ValueError if another skill
        has the same id, and TypeError if a parameter's name is unknown.
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
        """Return the agent's ASGI application, which needs the extra `agents`.

        `url` is the agent's address in its card. The default is the address at which a client requests the card.
        `is_anonymous` accepts requests without the service's token; use it for development only. `threads` limits the
        number of functions that run in threads at the same time. Raises ValueError if the agent has no skill, and
        ConfigurationError if the deployment's credentials are missing.
        """
        # Import here: importing a2a-sdk takes half a second, and a script that only declares an agent does not need it.
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
        # Collect by URI: the agent's declaration of an extension replaces the SDK's declaration.
        return tuple({at.uri: at for at in (*own, *self.extensions)}.values())

    def serve(self, *, host: str = "127.0.0.1", port: int = 8000, **more: Any) -> None:
        """Serve the agent with uvicorn until a stop signal. `more` contains further arguments of `app`."""
        serve(self, host=host, port=port, **more)


def serve(agent: Agent, *, host: str = "127.0.0.1", port: int = 8000, **more: Any) -> None:
    """Serve an agent with uvicorn until a stop signal. `more` contains further arguments of `Agent.app`."""
    import uvicorn

    uvicorn.run(
        agent.app(**more),
        host=host,
        port=port,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        server_header=False,
    )
