"""A real browser for tests: headless Chromium over its DevTools protocol, by two pipes."""

import base64
import json
import os
import re
import shutil
import time
from contextlib import contextmanager
from select import select
from subprocess import PIPE, Popen

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
SECONDS = 60


class Tab:
    """One page of the browser; remembers what its console said and what it asked the network
    for.
    """

    def __init__(self, process):
        self._process, self._waiting, self._number, self._session = process, b"", 0, {}
        self.errors = []
        self.requests = []
        target = self.send("Target.createTarget", url="about:blank")
        self._session = self.send("Target.attachToTarget", **target, flatten=True)
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        """Ask the browser, and wait for its answer."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params, **self._session}
        os.write(self._process.stdin.fileno(), json.dumps(asked).encode() + b"\0")
        while True:
            message = self._read()
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                return message["result"]
            self._note(message)

    def _read(self):
        pipe = self._process.stdout.fileno()
        while b"\0" not in self._waiting:
            assert select([pipe], [], [], SECONDS)[0], "Chromium says nothing"
            more = os.read(pipe, 1 << 20)
            assert more, "Chromium ended"
            self._waiting += more
        text, _, self._waiting = self._waiting.partition(b"\0")
        return json.loads(text)

    def _note(self, event):
        told = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(told["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if told["type"] in {"error", "warning", "assert"}:
                self.errors.append(json.dumps(told["args"]))
            case "Log.entryAdded":
                self.errors.append(told["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Page.javascriptDialogOpening":
                self.errors.append(f"dialog: {told['message']}")

    def open(self, path):
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.wait(
            "document.readyState === 'complete' && document.documentElement.dataset.ready === 'yes'"
        )

    def value(self, script):
        """What an expression comes to in the page."""
        found = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script):
        """Until an expression holds."""
        late = time.monotonic() + SECONDS
        while not self.value(script):
            assert time.monotonic() < late, (
                f"{script} did not come true; the console said {self.errors}"
            )
            time.sleep(0.02)

    def place(self, script):
        """Middle of an element, scrolled into view."""
        x, y = self.value(
            f"(() => {{ const e = {script}; e.scrollIntoView({{block: 'center', behavior:"
            " 'instant'});const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y +"
            " b.height / 2]; })()"
        )
        return x, y

    def move(self, x, y):
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, script):
        """Press an element with the mouse, wherever it is on the screen."""
        x, y = self.place(script)
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, name):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def texts(self, selector):
        """What all elements of a kind say."""
        return self.value(f"[...document.querySelectorAll({selector!r})].map((e) => e.textContent)")

    def press(self, label, inside="document"):
        """Press a button by its label."""
        self.click(
            f"[...{inside}.querySelectorAll('button')].find((b) => b.textContent.trim() ==="
            f" {label!r})"
        )

    @contextmanager
    def visit(self, path, width=1200):
        """Open a page; afterwards nobody complained and nothing was fetched."""
        self.view(width, 900)
        self.requests.clear()
        self.open(path)
        yield self
        assert self.errors == []
        assert self.requests == [path.resolve().as_uri()]

    def view(self, width, height, *, dark=False):
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", media="", features=features)

    def screenshot(self, path, *, whole=False):
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def tab(folder):
    """A tab of a browser of its own, which ends with it.

    Args:
        folder: where the browser keeps its profile.
    """
    # it takes requests on 3 and answers on 4
    command = ["sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >&2', "sh", CHROMIUM,
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe",
        f"--user-data-dir={folder / 'profile'}"]  # fmt: skip
    with (
        (folder / "chromium.log").open("wb") as log,
        Popen(command, stdin=PIPE, stdout=PIPE, stderr=log) as process,
    ):
        try:
            yield Tab(process)
        finally:
            process.terminate()


SCRIPT = re.compile(r'(<script type="application/json"[^>]*>)(.*?)</script>', re.DOTALL)


def page_data(page):
    """The JSON blocks of a page."""
    return [json.loads(text) for _, text in SCRIPT.findall(page)]


def outside_data(page):
    """A page without what stands in its JSON blocks."""
    return SCRIPT.sub("", page)


def first_data(page):
    """The first of them, which tells about the page."""
    return page_data(page)[0]
