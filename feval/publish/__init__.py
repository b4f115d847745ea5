"""Publishing a recording: its page, its picture, what must not leave the house, and the release that is pushed.

`release` puts them together; nothing here opens a connection but through `feval.hub`.
"""
