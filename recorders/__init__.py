"""From a live LLM to a recording: prompts, requests, backends, the journal, and the seal.

`recorders` imports `feval`; `feval` imports `recorders` in commands only.
"""
