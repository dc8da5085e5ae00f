"""Commands for the behaviors of deployments' agents."""

from pathlib import Path
from uuid import UUID

import click

from deploy.cli.command_context import acts_on, administration, choice, lists, required_id, show
from shared.a2a.agent_turns.updates import BehaviorKind
from shared.a2a.behaviors import administration as domain
from shared.identity.access.authorization import OPERATOR

_deployment = required_id("deployment")


behaviors = click.Group("behaviors", help="Manage the behaviors of agents.")


@behaviors.command("create", help="Create a behavior of a deployment's agent.")
@_deployment
@click.option("--name", required=True, help="What the agent's card calls it.")
@click.option(
    "--kind",
    type=choice((BehaviorKind.MODEL, BehaviorKind.SCRIPT)),
    default="model",
    show_default=True,
    help="What answers: a model, or a script of steps.",
)
@click.option("--description", required=True, help="What it does, as the agent's card says it.")
@click.option("--model", help="The model that a behavior of kind model asks, by its id in the catalog.")
@click.option("--instructions", default="", help="What the model is told to be.")
@click.option("--script", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A YAML file.")
@click.option("--tag", "tags", multiple=True, help="A tag on the card. May be given several times.")
@click.option("--default", "is_default", is_flag=True, help="Let it answer whatever asks for no other.")
def create_behavior(
    deployment_id: UUID, kind: str, script: Path | None, *, is_default: bool, **said: str
) -> None:
    text = script.read_text(encoding="utf-8") if script is not None else None
    draft = domain.BehaviorDraft(kind=BehaviorKind(kind), script=text, **said)  # type: ignore[arg-type]
    with administration() as session:
        made = domain.create_behavior(
            session, actor=OPERATOR, deployment_id=deployment_id, draft=draft, is_default=is_default
        )
    show(made)


lists(behaviors, domain.list_behaviors, "List the behaviors of a deployment's agent.", of="deployment")
acts_on(
    behaviors,
    "behavior",
    show=(domain.get_behavior, "Get a behavior."),
    make_default=(
        domain.make_default_behavior,
        "Set the default behavior, which answers messages that ask for no other.",
    ),
    remove=(domain.remove_behavior, "Delete a behavior; the default one last."),
)
