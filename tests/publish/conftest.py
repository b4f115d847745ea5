"""One Hub on loopback for every test of this folder."""

from hub_settings import hub, hub_server

__all__ = ["hub", "hub_server"]
