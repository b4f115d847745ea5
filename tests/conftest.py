"""Fixtures every test module shares."""

import gc
import os
import signal
import socket
import ssl
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from places import SHARED

# How long an example takes says how busy the machine is, not whether the code is right. The
# examples are the same in every run, so that a run says something of the change that was made, and
# more than 60 of them say little more: FEVAL_EXPLORE=1 looks for new ones, FEVAL_EXAMPLES=10 for
# ten times as many.
settings.register_profile(
    "feval",
    max_examples=60,
    deadline=None,
    derandomize=not os.environ.get("FEVAL_EXPLORE"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("feval")

# A shell has what it starts in the background ignore Ctrl-C; the programs that tests start and
# interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One worker more than cores, because tests also wait for the programs that they start."""
    return (yield) + 1


LOGIC = {
    "answers",
    "cli",
    "comparison",
    "estimators",
    "evaluation",
    "forecast",
    "methods",
    "receipts",
    "recorders",
    "replay",
}
"""Folders whose tests have cases that differ in what feval computes, not in what it asks of a
dependency.
"""


@pytest.hookimpl(trylast=True)  # after the marks have chosen
def pytest_collection_modifyitems(config, items):
    """Multiply the examples of each property by FEVAL_EXAMPLES.

    0.2, where old dependencies are tested, takes a fifth of the cases of each test of logic, too:
    spread evenly, at least one.
    """
    share = float(os.environ.get("FEVAL_EXAMPLES", "1"))
    if share == 1:
        return
    cases = Counter[str]()
    kept, left = [], []
    for item in items:
        number = cases[name := item.nodeid.partition("[")[0]]
        cases[name] += 1
        logic = item.path.relative_to(config.rootpath / "tests").parts[0] in LOGIC
        (
            kept if not logic or int(number * share + 1) > int((number - 1) * share + 1) else left
        ).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
    for function in {
        getattr(each, "__func__", each) for each in {getattr(item, "obj", None) for item in items}
    }:
        if getattr(function, "is_hypothesis_test", False):
            own = function._hypothesis_internal_use_settings
            fewer = max(1, round(share * own.max_examples))
            function._hypothesis_internal_use_settings = settings(own, max_examples=fewer)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect without looking for garbage: syntax trees and tests are many, and stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(scope="session")
def shared():
    """The folder of real recordings and reference values that lies beside the checkout."""
    if not (SHARED / "real" / "README.md").is_file():
        reason = "the folder of real recordings (../shared beside the checkout) is absent"
        if os.environ.get("FEVAL_REQUIRE_SHARED"):
            pytest.fail(reason)
        pytest.skip(reason)
    return SHARED


@pytest.fixture(scope="session", autouse=True)
def receipts_elsewhere(tmp_path_factory):
    """Commands that are given no place for their receipt keep it out of the user's own state
    folder.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEVAL_RECEIPTS", "none")
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def unforced_disk():
    """Tests of this process wait for no disk: `fsync` is for power cuts, which no test sees. Those
    of its failures patch it.
    """
    with pytest.MonkeyPatch.context() as patch:
        # a file that is not open is still an error
        patch.setattr(os, "fsync", lambda file: os.fstat(file) and None)
        yield


_BUNDLE_BYTES = 1 << 16  # at least, of all public certificate authorities


@pytest.fixture(scope="session", autouse=True)
def closed_network():
    """No test of this process reaches anything but this machine."""

    def guarded(reach):
        def connect(self, address):
            host = address[0] if isinstance(address, tuple) else ""
            if host and not str(host).startswith("127.") and host not in {"localhost", "::1"}:
                raise OSError(f"a test reached for {host!r}: the network is closed")
            return reach(self, address)

        return connect

    def without_bundle(load):
        """Every HTTP client reads all public certificate authorities first, and none of them has a
        use for one here.
        """

        def loaded(context, cafile=None, *others, **named):
            if cafile is None or Path(cafile).stat().st_size < _BUNDLE_BYTES:
                load(context, cafile, *others, **named)

        return loaded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded(socket.socket.connect))
        patch.setattr(socket.socket, "connect_ex", guarded(socket.socket.connect_ex))
        patch.setattr(
            ssl.SSLContext,
            "load_verify_locations",
            without_bundle(ssl.SSLContext.load_verify_locations),
        )
        yield


@pytest.fixture(scope="module")
def blank_pictures():
    """Save an empty figure, as wide as the drawn one has parts, in place of each picture: for tests
    of something else.
    """
    from matplotlib.figure import Figure

    def savefig(figure, file, **how):
        finished(Figure((len(figure.findobj()) / 20, 1)), file, **how | {"dpi": 20})

    finished = Figure.savefig
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", savefig)
        yield
