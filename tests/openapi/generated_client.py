"""Upload a file, share it by a link, follow the link, and call a model, all by the generated client.

Run by the tools' own Python: `generated_client.py URL ACCESS_TOKEN API_KEY`. Prints the results as JSON.
"""

import io
import json
import sys
import urllib.request
from uuid import uuid4

from quartermaster_client import AuthenticatedClient
from quartermaster_client.api.files import create_grant, upload_agent_artifact
from quartermaster_client.api.models import create_chat_completion, list_models
from quartermaster_client.models import ChatCompletion, ChatCreation, GrantBody, ModelList, UploadResult
from quartermaster_client.models.upload_agent_artifact_body import UploadAgentArtifactBody
from quartermaster_client.types import File

CONTENT = b"made by an agent"


def main(url: str, access_token: str, api_key: str) -> None:
    """Run all steps."""
    agent = AuthenticatedClient(base_url=url, token=access_token)
    file = File(payload=io.BytesIO(CONTENT), file_name="report.txt", mime_type="text/plain")
    uploaded = upload_agent_artifact.sync(
        client=agent,
        body=UploadAgentArtifactBody(file=file),
        operation_id=uuid4(),
        byte_size=len(CONTENT),
    )
    assert isinstance(uploaded, UploadResult), uploaded
    grant = create_grant.sync(uploaded.id, uploaded.version_id, client=agent, ttl_seconds=600)
    assert isinstance(grant, GrantBody), grant
    with urllib.request.urlopen(grant.url) as answer:
        followed = answer.read()
    caller = AuthenticatedClient(base_url=url, token=api_key)
    catalog = list_models.sync(client=caller)
    assert isinstance(catalog, ModelList), catalog
    asked = ChatCreation.from_dict(
        {"model": "scripted/echo", "messages": [{"role": "user", "content": "Say hello"}]}
    )
    completion = create_chat_completion.sync(client=caller, body=asked)
    assert isinstance(completion, ChatCompletion), completion
    report = {
        "replayed": uploaded.replayed,
        "followed": followed.decode(),
        "models": [model.id for model in catalog.data],
        "reply": completion.choices[0].message.content,
        "tokens": completion.usage.total_tokens,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
