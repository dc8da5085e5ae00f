"""Return the text of `MODELS_CONFIG` for the models that a test needs."""

import json

FAKE = 'provider = "fake", model = "upstream-model"'
"""The `FakeUpstream` of a test."""
FAKE_RESPONSES = f'{FAKE}, dialect = "responses"'


def model_text(
    model_id: str, *upstreams: str, prompt: str = "1", completion: str = "2", **options: object
) -> str:
    """Return a model's text: these prices, and these upstreams in the order of use."""
    fields = {"id": model_id, "prompt_price": prompt, "completion_price": completion, **options}
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    asked = ", ".join(f"{{ {upstream} }}" for upstream in upstreams)
    return "\n".join(["[[models]]", *lines, f"upstreams = [{asked}]", ""])
