"""Load the names of a package on first use (PEP 562), so that importing the package stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose public names live in its modules (dotted, relative to it).

    A module listed without names is itself an attribute: `from feval import hub; hub.recordings.pull(...)` loads it on use.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}
    whole = {module: f"{package}.{module}" for module, names in modules.items() if not names}

    def get(name: str) -> object:
        if name in whole:
            return import_module(whole[name])
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*homes, *whole, *getattr(sys.modules[package], "__all__", ())})
