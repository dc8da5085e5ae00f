"""The image and the compose file, as checked by container tools."""

from tests.deployment.conftest import ROOT, RunTool


def test_the_image_follows_the_linters_advice(run_tool: RunTool) -> None:
    found = run_tool("hadolint", ROOT / "deploy" / "Dockerfile")
    assert (found.returncode, found.stdout) == (0, "")


def test_compose_understands_its_file(run_tool: RunTool) -> None:
    found = run_tool("docker-compose", "-f", ROOT / "deploy" / "compose.yaml", "config", "--quiet")
    assert found.returncode == 0, found.stderr
