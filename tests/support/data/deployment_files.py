"""Read the process descriptions of every form of deployment from its files, and compare them with `PROCESS_TYPES`."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from deploy.process_types import PROCESS_TYPES, Egress, ProcessType

GUARDED = "MIGRATIONS_DATABASE_URL"
SOMEWHERE = frozenset({Egress.PROVIDERS, Egress.PUBLIC})
NOWHERE = frozenset({Egress.NONE})


@dataclass(frozen=True, kw_only=True)
class Described:
    """The description of one process in one form of deployment; None for what the form omits."""

    command: str
    settings: frozenset[str] | None = None
    egress: Collection[Egress] | None = None
    has_provider_keys: bool | None = None
    stop_seconds: int | None = None


Descriptions = Mapping[str, Described]


def find_differences(described: Descriptions) -> Iterator[str]:
    """Yield every difference from `PROCESS_TYPES`."""
    for name in PROCESS_TYPES.keys() ^ described.keys():
        yield f"{name} is described in one place alone"
    for name in PROCESS_TYPES.keys() & described.keys():
        yield from (f"{name}: {each}" for each in _compare(PROCESS_TYPES[name], described[name]))


def _compare(wanted: ProcessType, found: Described) -> Iterator[str]:
    if found.command != wanted.command:
        yield f"runs {found.command!r}, not {wanted.command!r}"
    if found.settings is not None:
        yield from (f"lacks {setting}" for setting in sorted(wanted.settings - found.settings))
        if GUARDED in found.settings - wanted.settings:
            yield f"may not have {GUARDED}"
    if found.egress is not None and wanted.egress not in found.egress:
        yield f"may reach {sorted(each.value for each in found.egress)}, not {wanted.egress.value}"
    if found.has_provider_keys not in (None, wanted.has_provider_keys):
        yield "has keys of providers" if found.has_provider_keys else "lacks the keys of providers"
    if found.stop_seconds is not None and found.stop_seconds < (wanted.stop_seconds or 0):
        yield f"has {found.stop_seconds} s to stop, not {wanted.stop_seconds}"


def read_procfile(text: str) -> Descriptions:
    """Return the processes of a Procfile: names and commands."""
    lines = (line.partition(":") for line in text.splitlines())
    return {
        name: Described(command=command.strip().removeprefix("quartermaster ")) for name, _, command in lines
    }


def read_runbook(text: str) -> Descriptions:
    """Return the processes in the runbook's first table: name, command, egress."""
    rows = re.findall(r"^\| `([\w-]+)`: .*? \| `quartermaster ([\w ]+)` \| (\w+) \|", text, re.MULTILINE)
    return {name: Described(command=command, egress={Egress[out.upper()]}) for name, command, out in rows}


def read_compose(document: Mapping[str, Any]) -> Descriptions:
    """Return the services of a compose file that use our image."""
    return {
        name: Described(
            command=" ".join(service["command"]),
            settings=frozenset({*service["environment"], *map(str.upper, service["secrets"])}),
            egress=SOMEWHERE if any(_lets_out(document, each) for each in service["networks"]) else NOWHERE,
            has_provider_keys=any("providers" in each["path"] for each in service.get("env_file", ())),
            stop_seconds=int(service.get("stop_grace_period", "10s").removesuffix("s")),
        )
        for name, service in document["services"].items()
        if "build" in service
    }


def _lets_out(document: Mapping[str, Any], network: str) -> bool:
    made = document["networks"][network]
    masquerade = made.get("driver_opts", {}).get("com.docker.network.bridge.enable_ip_masquerade", "true")
    return not made.get("internal") and masquerade != "false"


def read_units(directory: Path) -> Descriptions:
    """Return the units that the target enables, and the migration's unit, each with its drop-ins."""
    enabled = re.findall(r"quartermaster-[\w@-]+\.service", (directory / "quartermaster.target").read_text())
    return {
        _name_of(unit): _read_unit(directory, unit) for unit in (*enabled, "quartermaster-release.service")
    }


def _name_of(unit: str) -> str:
    return unit.removeprefix("quartermaster-").removesuffix(".service").replace("@", "-")


def _read_unit(directory: Path, unit: str) -> Described:
    template = re.sub(r"@\w+", "@", unit)
    dropped = [*directory.glob("quartermaster-.service.d/*"), *directory.glob(f"{unit}.d/*")]
    parts = [_parse_unit(path) for path in (directory / template, *dropped)]
    files = [value for part in parts for value in part.get("EnvironmentFile", ())]
    denied = [value for part in parts for value in part.get("IPAddressDeny", ())]
    (command,) = parts[0]["ExecStart"]
    instance = unit.partition("@")[2].removesuffix(".service")
    return Described(
        command=command.partition(" ")[2].replace("%i", instance),
        settings=_settings_of(files),
        egress=NOWHERE if denied[-1] == "any" else SOMEWHERE,
        has_provider_keys="-/etc/quartermaster/providers" in files,
        stop_seconds=int(parts[0]["TimeoutStopSec"][0]) if "TimeoutStopSec" in parts[0] else None,
    )


def _parse_unit(path: Path) -> dict[str, list[str]]:
    """Return the `[Service]` section of a unit; a key may occur more than once."""
    found: dict[str, list[str]] = {}
    section = path.read_text().partition("[Service]\n")[2].partition("\n[")[0]
    for line in section.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def _settings_of(files: Collection[str]) -> frozenset[str]:
    """Return the settings in the files that the runbook tells operators to write."""
    everything = frozenset.union(*(each.settings for each in PROCESS_TYPES.values())) - {GUARDED}
    given = everything if "/etc/quartermaster/environment" in files else frozenset()
    return given | ({GUARDED} if "-/etc/quartermaster/release" in files else set())


def read_chart(
    manifests: Collection[Mapping[str, Any]], secrets: Mapping[str, Collection[str]]
) -> Descriptions:
    """Return the pods and network policies that a chart has rendered; `secrets` are the keys of each Secret."""
    policies = {_component(each): each["spec"] for each in manifests if each["kind"] == "NetworkPolicy"}
    pods = [each for each in manifests if each["kind"] in ("Deployment", "Job")]
    return {
        name: _read_pod(each["spec"]["template"]["spec"], policies[name], secrets)
        for each in pods
        for name in [_component(each)]
    }


def _component(manifest: Mapping[str, Any]) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def _read_pod(
    pod: Mapping[str, Any], policy: Mapping[str, Any], secrets: Mapping[str, Collection[str]]
) -> Described:
    (container,) = pod["containers"]
    mounted = [
        source["secret"]["name"]
        for volume in pod["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
    ]
    files = {key.upper() for name in mounted for key in secrets[name]}
    keys = [key for each in container.get("envFrom", ()) for key in secrets[each["secretRef"]["name"]]]
    return Described(
        command=" ".join(container["args"]),
        settings=frozenset(files | {each["name"] for each in container["env"]}),
        egress={_read_egress(policy)},
        has_provider_keys=bool(keys),
        stop_seconds=pod.get("terminationGracePeriodSeconds"),
    )


def _read_egress(policy: Mapping[str, Any]) -> Egress:
    """Return a policy's egress by the ports it opens to the public internet; private networks are for the servers."""
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    ports = {
        port["port"]
        for rule in policy["egress"]
        for block in (peer.get("ipBlock") for peer in rule["to"])
        if block is not None and not ip_network(block["cidr"]).is_private
        for port in rule["ports"]
    }
    return {frozenset[int](): Egress.NONE, frozenset({443}): Egress.PROVIDERS}.get(
        frozenset(ports), Egress.PUBLIC
    )
