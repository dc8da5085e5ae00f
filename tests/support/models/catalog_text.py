"""Write the models that tests configure the service with, as `MODELS_CONFIG` wants them."""

import json

FAKE = 'provider = "fake", model = "upstream-model"'
"""The `FakeUpstream` of a test."""
FAKE_RESPONSES = f'{FAKE}, dialect = "responses"'


def model_text(
    model_id: str, *upstreams: str, prompt: str = "1", completion: str = "2", **options: object
) -> str:
    """Describe a model at these prices that asks the upstreams in this order."""
    fields = {"id": model_id, "prompt_price": prompt, "completion_price": completion, **options}
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    asked = ", ".join(f"{{ {upstream} }}" for upstream in upstreams)
    return "\n".join(["[[models]]", *lines, f"upstreams = [{asked}]", ""])
