"""The command group `behaviors`: the models and scripts with which agents of deployments reply to messages."""

from pathlib import Path
from uuid import UUID

import click

from deploy.cli.command_context import add_actions, add_list, administration, choice, required_id, show
from shared.a2a.behaviors import administration as domain
from shared.a2a.updates import BehaviorKind
from shared.identity.access.authorization import OPERATOR

_deployment = required_id("deployment")


behaviors = click.Group("behaviors", help="Manage the behaviors of agents.")


@behaviors.command("create", help="Create a behavior of a deployment's agent.")
@_deployment
@click.option("--name", required=True, help="Name on the agent's card.")
@click.option(
    "--kind",
    # Omit `remote`: `endpoints set` creates the behavior of a remote agent together with the endpoint.
    type=choice((BehaviorKind.MODEL, BehaviorKind.SCRIPT)),
    default="model",
    show_default=True,
    help="Agent backend: a model of the catalog, or a script.",
)
@click.option("--description", required=True, help="Description on the agent's card.")
@click.option("--model", help="Id of the catalog's model; required for kind model.")
@click.option("--instructions", default="", help="System instructions for the model.")
@click.option(
    "--script",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file of the script; required for kind script.",
)
@click.option("--tag", "tags", multiple=True, help="Tag on the agent's card; repeatable.")
@click.option(
    "--default", "is_default", is_flag=True, help="Make it the default, for messages that name no behavior."
)
def create_behavior(
    deployment_id: UUID, kind: str, script: Path | None, *, is_default: bool, **options: str
) -> None:
    text = script.read_text(encoding="utf-8") if script is not None else None
    draft = domain.BehaviorDraft(kind=BehaviorKind(kind), script=text, **options)  # type: ignore[arg-type]
    with administration() as session:
        made = domain.create_behavior(
            session, actor=OPERATOR, deployment_id=deployment_id, draft=draft, is_default=is_default
        )
    show(made)


add_list(behaviors, domain.list_behaviors, "List the behaviors of a deployment's agent.", of="deployment")
add_actions(
    behaviors,
    "behavior",
    show=(domain.get_behavior, "Get a behavior."),
    make_default=(
        domain.make_default_behavior,
        "Set the default behavior, which answers messages that name no behavior.",
    ),
    remove=(domain.remove_behavior, "Delete a behavior; the default one only if no other is left."),
)
