"""One Hub on loopback for every test of this folder, and one picture for each recording."""

from hub_settings import hub, hub_server
from published import licence_stated, pictures_drawn_once

__all__ = ["hub", "hub_server", "licence_stated", "pictures_drawn_once"]
