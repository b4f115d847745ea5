"""Backends sample chains of thought, behind the protocol `recorders.request.Backend`.

- `openai_compatible`: any endpoint with OpenAI's chat completions, through the official client
  (extra `record`).
- `local`: a Hugging Face model in this process (extra `coupled`), and the models that come with
  feval (need nothing).

None of them retries, waits or writes: they ask once, check the reply, and raise one of four errors
(`RateLimitError`, `Transient`, `RefusalError`, `Fatal`). What is merely worth knowing (a server
that ignores n) goes to a `note`.
"""
