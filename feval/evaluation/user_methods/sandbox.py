"""The surroundings of a user's method: its environment, and on request a sandbox made by bubblewrap
(`bwrap`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from feval.errors import UsageError

_FEVAL = Path(__file__).parents[2]
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store")
# of the dynamic linker, and links to libraries
_SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
_WITHHELD = {"PWD", "OLDPWD"}
# In a user namespace of its own a method would have all capabilities again: it could mount the tree
# of control groups and freeze feval, or as root the system's services.
_LOCKED = ("--unshare-user", "--disable-userns", "--cap-drop", "ALL")
_ISOLATED = ("--unshare-all", "--die-with-parent", "--new-session", *_LOCKED)


def python_environment(*, sandbox: bool) -> Mapping[str, str]:
    """Return the environment of the worker process: this one's without what names recordings;
    almost none in a sandbox.
    """
    if sandbox:
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": "/tmp",  # noqa: S108  the sandbox's own /tmp
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(_FEVAL.parent),
        }
    path = os.pathsep.join([str(_FEVAL.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _WITHHELD and not name.startswith("FEVAL_")
    }
    return kept | {"PYTHONPATH": path}


def sandboxed(command: Sequence[str]) -> list[str]:
    """Return a Python command in a sandbox: no network, no home, a read-only system and kernel, its
    own /tmp and process ids.

    Raises:
        UsageError: bubblewrap is not installed, is older than 0.8, or cannot make namespaces here.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise UsageError(
            "--sandbox runs a method in bubblewrap, and there is no `bwrap` on the PATH. Install"
            " bubblewrap, or leave --sandbox out."
        )
    probe = subprocess.run(  # noqa: S603  as found on the PATH
        [bwrap, *_ISOLATED, "--ro-bind", "/", "/", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        raise UsageError(
            "--sandbox runs a method in bubblewrap, which cannot make a sandbox here"
            f" ({probe.stderr.strip():.200}). Install bubblewrap 0.8 or later and allow"
            " unprivileged user namespaces, or leave --sandbox out."
        )
    places = [part for place in _read_only_places() for part in ("--ro-bind", place, place)]
    kept = [part for place in _SETTINGS for part in ("--ro-bind-try", place, place)]
    devices = ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")  # noqa: S108  the sandbox's own
    return [
        bwrap,
        *_ISOLATED,
        *_system(),
        *kept,
        *devices,
        *_kernel(),
        *places,
        "--chdir",
        "/tmp",  # noqa: S108  the sandbox's own /tmp
        *command,
    ]


def _system() -> Iterator[str]:
    for place in _SYSTEM:
        if Path(place).is_symlink():  # /lib is usually usr/lib
            yield from ("--symlink", str(Path(place).readlink()), place)
        elif Path(place).is_dir():
            yield from ("--ro-bind", place, place)


def _kernel() -> Iterator[str]:
    """Make read-only what belongs to no process: root may write the system's settings without any
    capability.
    """
    for place in sorted(Path("/proc").glob("[!0-9]*")):
        if not place.is_symlink() and (place.is_dir() or place.stat().st_mode & 0o222):
            yield from ("--ro-bind", str(place), str(place))


def _read_only_places() -> list[str]:
    """Return the folders of Python and of what can be imported, but for feval's own checkout and
    the working folder.
    """
    imported = [Path(place) for place in sys.path if place]
    own = {_FEVAL.parent, Path.cwd(), Path.home(), Path("/")}
    python = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parents[1]]
    places = [
        place for place in (*python, *imported) if place.is_dir() and place.absolute() not in own
    ]
    return list(dict.fromkeys(str(place.absolute()) for place in (*places, _FEVAL)))
