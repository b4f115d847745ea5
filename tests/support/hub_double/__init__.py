"""A Hugging Face Hub in memory, on loopback, for the real client: repositories of the type dataset.

    with HubDouble() as hub:
        commit = hub.add_dataset("openai/gsm8k", {"main/test-00000-of-00001.parquet": data})
        HfApi(endpoint=hub.url).dataset_info("openai/gsm8k", revision=commit)

What it answers is what the client asks: names, commits, sizes and hashes are right, `HEAD` and
`GET` of a file honour ranges, and what is uploaded, committed and tagged is there afterwards. Its
faults are switched on by attributes of `HubDouble`. Every request is written down in `requests`,
and the bytes of every file that is sent in `sent_bytes`.

`repositories` holds what the Hub stores, `hub` the server and its switches, `reading` and `writing`
the answers.
"""

from hub_double.hub import Failure, HubDouble, Request
from hub_double.repositories import git_blob, is_lfs, sha256

__all__ = ["Failure", "HubDouble", "Request", "git_blob", "is_lfs", "sha256"]
