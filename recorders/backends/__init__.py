"""Backends: what samples chains of thought, behind the one protocol of `recorders.request.Backend`.

- `openai_compatible`: any endpoint that speaks OpenAI's chat completions, through the official client (extra `record`).
- `transformers_local`: a Hugging Face model in this process (needs torch and transformers).
- `tiny`: the models that come with feval (needs nothing).

None of them retries, waits or writes: they ask once, check what came back, and say what went wrong in one of four words
(`RateLimited`, `Transient`, `Refused`, `Fatal`). What is merely worth knowing (a server that ignores n) goes to a `note`.
"""
