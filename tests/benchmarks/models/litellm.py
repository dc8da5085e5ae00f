"""LiteLLM's proxy as a yardstick, from the Python package index, in a virtual environment of its own.

It runs with its defaults, in one process, but without a database: its Postgres client downloads programs that no
package index has. So it checks one master key and keeps no keys, budgets or spend, and does less work than the
product. Each printed comparison states this.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from deploy.supervision.child_processes import Program
from tests.benchmarks.peers.servers import install
from tests.support.processes.stack import Service, wait_until

PACKAGE = "litellm[proxy]==1.106.2"
KEY = "sk-benchmark"
INSTALL_SECONDS = 300
START_SECONDS = 90.0


class LiteLlm(Service):
    """The proxy."""

    def is_answering(self) -> bool:
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/health/liveliness")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def wait_until_answering(self) -> None:
        wait_until(self.is_answering, f"LiteLLM answers; see {self.log}", seconds=START_SECONDS)


def litellm(
    peers: Path, directory: Path, port: int, models: Mapping[str, tuple[str, str]], *, may_install: bool
) -> LiteLlm | None:
    """Describe a proxy with these models, each with an upstream's address and model name. None without LiteLLM."""
    environment = peers / "litellm"
    if not (may_install or (environment / "bin" / "litellm").exists()):
        return None
    program = install(environment, PACKAGE, "litellm", seconds=INSTALL_SECONDS)
    if program is None:
        return None
    directory.mkdir()
    configuration = directory / "litellm.json"  # JSON is valid YAML.
    configuration.write_text(json.dumps(_configuration(models)))
    options = ("--config", str(configuration), "--host", "127.0.0.1", "--port", str(port))
    # Use the price list of its own package. The upstream repeats one word, which LiteLLM's check would take for an
    # error.
    settings = {
        "HOME": str(directory),
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "REPEATED_STREAMING_CHUNK_LIMIT": "1000000",
    }
    return LiteLlm(
        Program(
            name="litellm",
            command=(str(program), *options),
            environment=settings,
            directory=directory,
            log=directory / "litellm.log",
        ),
        port=port,
    )


def _configuration(models: Mapping[str, tuple[str, str]]) -> dict[str, object]:
    listed = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"openai/{upstream_model}",
                "api_base": address,
                "api_key": "none",
                "input_cost_per_token": 1e-6,
                "output_cost_per_token": 2e-6,
            },
        }
        for name, (address, upstream_model) in models.items()
    ]
    return {
        "model_list": listed,
        "general_settings": {"master_key": KEY},
        "litellm_settings": {"telemetry": False},
    }
