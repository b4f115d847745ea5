"""Publishing a recording: its page and picture, the search for secrets, and the release that is pushed.

`release` puts them together; connections are opened by `feval.hub` alone.
"""
