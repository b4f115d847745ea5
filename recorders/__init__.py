"""Recorders: a live LLM in, a recording out.

No recorder is written yet; this page is what each will promise.

1. **Nothing acknowledged is lost.** Every reply is in an append-only journal, on disk, before it counts. A kill at any
   moment, then the same command again, goes on where it stopped.
2. **Nothing is paid twice.** The key of a CoT is the content of its request plus its sample index; a key that is in the
   journal is never asked for again. The index itself is never sent to the provider.
3. **What came back is checked.** Number of choices, finish reason, token usage, log-probabilities: what a server was asked
   for and did not do is noticed and said.
4. **Sealing is atomic.** A journal becomes a recording in one rename, and stays until the recording has been verified.
5. **No secret is written**: keys appear in no journal, recording, log, error or process argument.

A recorder imports `feval`; `feval` never imports a recorder, except `feval.cli` inside the commands that record.
"""
