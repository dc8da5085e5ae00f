"""Write an agent as Python functions, and serve the agent to the service over A2A 1.0.

```python
from quartermaster.agents import Agent, Artifact, Ask, Status

agent = Agent("Reporter", "Reports on a photo.")

@agent.skill(tags=["reports"])
def report(text, files, client):
    \"\"\"Describe what is in the photo.\"\"\"
    if not files:
        yield Ask("Which photo?")
        return
    yield Status("Looking")
    yield Artifact(render(files[0].read()), "report.pdf")
    yield "Here is your report."

agent.serve(port=8000)
```

This package needs the extra `agents`. The extra's packages are imported only when an agent is served.
"""

from quartermaster.agents.agent import Agent, serve
from quartermaster.agents.extensions import Extension
from quartermaster.agents.outputs import Artifact, Ask, Failed, FileAction, Output, Status
from quartermaster.agents.received_files import File

__all__ = [
    "Agent",
    "Artifact",
    "Ask",
    "Extension",
    "Failed",
    "File",
    "FileAction",
    "Output",
    "Status",
    "serve",
]
