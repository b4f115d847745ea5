"""Servers of our own: the recording proxy and the server of the tiny models. They need the extra `serve`."""

from feval.serving import web  # noqa: F401  first of all, as it says how to install Starlette where it is missing
