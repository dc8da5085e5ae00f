"""Commands for the behaviors of deployments' agents."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import click

from deploy.administration import acts_on, administration, choice, paged, show, show_page
from shared.a2a.behaviors import administration as domain
from shared.a2a.turns.updates import BehaviorKind
from shared.identity.authorization import OPERATOR

_deployment = click.option("--deployment", "deployment_id", type=click.UUID, required=True)


@click.group()
def behaviors() -> None:
    """Manage the behaviors of agents."""


@behaviors.command("create")
@_deployment
@click.option("--name", required=True)
@click.option("--kind", type=choice(BehaviorKind), default="model", show_default=True)
@click.option("--description", required=True, help="What it does, as the agent's card says it.")
@click.option("--model", help="The model that a behavior of kind model asks, by its id in the catalog.")
@click.option("--instructions", default="", help="What the model is told to be.")
@click.option("--script", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A YAML file.")
@click.option("--tag", "tags", multiple=True)
@click.option("--default", "is_default", is_flag=True, help="Let it answer whatever asks for no other.")
def create_behavior(
    deployment_id: UUID, kind: str, script: Path | None, *, is_default: bool, **said: str
) -> None:
    """Create a behavior of a deployment's agent."""
    text = script.read_text(encoding="utf-8") if script is not None else None
    draft = domain.BehaviorDraft(kind=BehaviorKind(kind), script=text, **said)  # type: ignore[arg-type]
    with administration() as session:
        made = domain.create_behavior(
            session, by=OPERATOR, deployment_id=deployment_id, draft=draft, is_default=is_default
        )
    show(made)


@behaviors.command("list")
@_deployment
@paged
def list_behaviors(deployment_id: UUID, cursor: str | None, limit: int) -> None:
    """List the behaviors of a deployment's agent."""
    with administration() as session:
        page = domain.list_behaviors(
            session, by=OPERATOR, deployment_id=deployment_id, cursor=cursor, limit=limit
        )
    show_page("behaviors", page)


acts_on(
    behaviors,
    "behavior",
    {
        "show": domain.get_behavior,
        "make-default": domain.make_default_behavior,
        "remove": domain.remove_behavior,
    },
)
