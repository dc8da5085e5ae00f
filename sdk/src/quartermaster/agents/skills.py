"""Skills: functions with what the card says of them, called with the arguments that they name."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SKILL_KEY = "skillId"
"""The member of a message's metadata that chooses a skill, by id or name."""
INJECTED = frozenset(
    {"text", "files", "data", "message", "metadata", "task", "context", "client", "extensions"}
)
"""The parameters that a skill may have."""


class UnknownSkill(LookupError):
    """A message asks for a skill that the agent does not have."""


@dataclass(frozen=True)
class Skill:
    """A function of the agent, as the card describes it."""

    function: Callable[..., Any]
    id: str
    name: str
    description: str
    tags: Sequence[str]
    examples: Sequence[str]
    input_modes: Sequence[str]
    output_modes: Sequence[str]

    @property
    def is_async(self) -> bool:
        """Tell whether the function runs on the event loop; others run in threads."""
        return inspect.iscoroutinefunction(self.function) or inspect.isasyncgenfunction(self.function)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Give the names of what is to be injected."""
        return tuple(name for name in inspect.signature(self.function).parameters if name in INJECTED)


def describe_skill(
    function: Callable[..., Any],
    *,
    id: str | None,  # noqa: A002 - the card's word
    name: str | None,
    tags: Sequence[str],
    examples: Sequence[str],
    input_modes: Sequence[str],
    output_modes: Sequence[str],
) -> Skill:
    """Describe a function as a skill, by its name and docstring where nothing else is said."""
    _require_injectable(function)
    identifier = id or function.__name__
    title = name or function.__name__.replace("_", " ").capitalize()
    return Skill(
        function=function,
        id=identifier,
        name=title,
        description=inspect.getdoc(function) or title,
        tags=tuple(tags) or (identifier,),
        examples=tuple(examples),
        input_modes=tuple(input_modes),
        output_modes=tuple(output_modes),
    )


def choose_skill(skills: Mapping[str, Skill], wanted: object) -> Skill:
    """Give the skill of that id or name, the first one where none is wanted; raises UnknownSkill."""
    if wanted is None:
        return next(iter(skills.values()))
    for skill in skills.values():
        if wanted in {skill.id, skill.name}:
            return skill
    raise UnknownSkill(f"The agent has no such skill; it has {', '.join(skills)}.")


def _require_injectable(function: Callable[..., Any]) -> None:
    """Find a misspelt parameter when the agent is written, not when it is called."""
    for parameter in inspect.signature(function).parameters.values():
        is_free = parameter.default is not parameter.empty or parameter.kind in {
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        }
        if parameter.name not in INJECTED and not is_free:
            raise TypeError(
                f"{function.__name__}() has the parameter {parameter.name!r}; "
                f"a skill is given any of {', '.join(sorted(INJECTED))}."
            )
