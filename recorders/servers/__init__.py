"""Servers of our own: the recording proxy and the server of the tiny models.

They need the extra `serve`. So they are imported when they are used: `feval proxy --help` works
without it.
"""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from recorders.servers import proxy as proxy, tiny_server as tiny_server

__getattr__, __dir__ = lazy_names(__name__, {"proxy": "", "tiny_server": ""})
