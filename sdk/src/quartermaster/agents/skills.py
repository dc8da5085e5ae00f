"""Skills: the functions of an agent, their descriptions in the card, and the parameters that they may have."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SKILL_KEY = "skillId"
"""The member of a message's metadata that contains the id or the name of a skill."""
INJECTED = frozenset(
    {"text", "files", "data", "message", "metadata", "task", "context", "client", "extensions"}
)
"""The names of the parameters that receive arguments."""


class UnknownSkill(LookupError):
    """A message names a skill that the agent does not have."""


@dataclass(frozen=True)
class Skill:
    """A function of an agent, and the skill's description in the card."""

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
        """Whether the function runs on the event loop and not in a thread."""
        return inspect.iscoroutinefunction(self.function) or inspect.isasyncgenfunction(self.function)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that receive arguments."""
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
    """Return a function as a skill. By default, id and name come from its name, and the description from its docstring.

    Raises TypeError if a parameter is not in `INJECTED` and has no default.
    """
    _require_injectable(function)
    identifier = id or function.__name__
    title = name or function.__name__.replace("_", " ").capitalize()
    return Skill(
        function=function,
        id=identifier,
        name=title,
        description=inspect.getdoc(function) or title,
        # A2A requires at least one tag, so use the id if there are no tags.
        tags=tuple(tags) or (identifier,),
        examples=tuple(examples),
        input_modes=tuple(input_modes),
        output_modes=tuple(output_modes),
    )


def choose_skill(skills: Mapping[str, Skill], wanted: object) -> Skill:
    """Return the skill whose id or name is `wanted`, or the first skill if `wanted` is None. Raises UnknownSkill."""
    if wanted is None:
        return next(iter(skills.values()))
    for skill in skills.values():
        if wanted in {skill.id, skill.name}:
            return skill
    raise UnknownSkill(f"The agent has no skill {str(wanted)[:100]!r}; its skills are {', '.join(skills)}.")


def _require_injectable(function: Callable[..., Any]) -> None:
    """Raise TypeError if a parameter is unknown, so that the error appears before a message arrives."""
    for parameter in inspect.signature(function).parameters.values():
        is_free = parameter.default is not parameter.empty or parameter.kind in {
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        }
        if parameter.name not in INJECTED and not is_free:
            raise TypeError(
                f"{function.__name__}() has an unknown parameter {parameter.name!r}; "
                f"a skill may have {', '.join(sorted(INJECTED))}."
            )
