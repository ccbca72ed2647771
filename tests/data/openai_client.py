"""Asks a coordinator for texts as programs do that were written for OpenAI's interface.

Arguments: the address, and the name of the model. Prints `ok` at the end; what is wrong ends it with a traceback.
"""

import sys

import openai

url, name = sys.argv[1:]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

assert [model.id for model in client.models.list()] == [name]

asked = dict(model=name, prompt="The ", max_tokens=20, temperature=0.7, seed=3)
whole = client.completions.create(**asked)
choice = whole.choices[0]
assert whole.object == "text_completion" and choice.finish_reason == "length", whole
assert len(choice.text) > 0 and choice.logprobs is None, whole
assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (4, 20), whole
assert client.completions.create(**asked).choices[0].text == choice.text, "the same seed, another text"

pieces = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == choice.text, pieces
assert pieces[-1].usage.completion_tokens == 20 and len(pieces) > 10, pieces

several = client.completions.create(**asked | {"prompt": ["The ", "A "], "n": 2})
assert [choice.index for choice in several.choices] == [0, 1, 2, 3], several
assert several.choices[0].text == choice.text, "what a text says depends on the others"
assert several.choices[1].text != choice.text, "two texts of one prompt are the same"

stop = choice.text[5]
stopped = client.completions.create(**asked, stop=stop).choices[0]
assert stopped.finish_reason == "stop" and stopped.text == choice.text[: choice.text.index(stop)], stopped

scored = client.completions.create(
    model=name, prompt="The ", max_tokens=0, echo=True, logprobs=2
).choices[0]
assert scored.text == "The " and scored.logprobs.tokens == list("The "), scored
assert scored.logprobs.token_logprobs[0] is None and scored.logprobs.token_logprobs[1] < 0, scored
assert scored.logprobs.text_offset == [0, 1, 2, 3], scored
assert all(2 <= len(likeliest) <= 3 for likeliest in scored.logprobs.top_logprobs[1:]), scored


def fails(kind, param, **fields):
    try:
        client.completions.create(**asked | fields)
    except kind as error:
        assert error.param == param and len(error.message) > 20, error
        return
    raise AssertionError(f"{fields} is let through")


fails(openai.NotFoundError, "model", model="gpt-4")
fails(openai.BadRequestError, "prompt", prompt="")
fails(openai.BadRequestError, "prompt", prompt="x" * 33)
fails(openai.BadRequestError, "prompt", prompt=[256])
fails(openai.BadRequestError, "max_tokens", max_tokens=10**6)
fails(openai.BadRequestError, "n", n=99)
fails(openai.BadRequestError, "presence_penalty", presence_penalty=1)

print("ok")
