"""Lint and render the chart with values, by Helm's code; it runs in the Python of the deployment tools."""

import json
import sys

from helm_python.chart import Chart, lint


def main() -> None:
    """Read values as JSON. Write the linter's findings, and the manifests by template."""
    directory, values = sys.argv[1], json.loads(sys.argv[2])
    found = lint(directory, values, strict=True)
    with Chart.load(directory) as chart:
        chart.validate_schema(values)
        rendered = chart.render(values=values, name="quartermaster", namespace="here")
    json.dump({"lint": found["messages"], "rendered": rendered}, sys.stdout)


if __name__ == "__main__":
    main()
