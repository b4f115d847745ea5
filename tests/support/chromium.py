"""A real browser for tests: headless Chromium over its DevTools protocol, by sockets alone."""

import base64
import http.client
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import time
from contextlib import contextmanager

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
SECONDS = 60


class Tab:
    """One page of the browser; remembers what its console said and what it asked the network
    for.
    """

    def __init__(self, host, port, path):
        self._socket = socket.create_connection((host, port), SECONDS)
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection:"
            f" Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self._stream = self._socket.makefile("rb")
        assert b"101" in self._stream.readline()
        while self._stream.readline() not in {b"\r\n", b""}:
            pass
        self._number = 0
        self.errors = []
        self.requests = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self):
        self._stream.close()
        self._socket.close()

    def send(self, method, **params):
        """Ask the browser, and wait for its answer."""
        self._number += 1
        self._write(json.dumps({"id": self._number, "method": method, "params": params}).encode())
        while True:
            message = json.loads(self._read())
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                return message["result"]
            self._note(message)

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

    def _write(self, payload):
        size, mask = len(payload), os.urandom(4)
        length = bytes([0x80 | size]) if size < 126 else struct.pack("!BH", 0xFE, size)
        if size >= 1 << 16:
            length = struct.pack("!BQ", 0xFF, size)
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
        self._socket.sendall(b"\x81" + length + mask + masked)

    def _read(self):
        whole = b""
        while True:
            first, second = self._stream.read(2)
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", self._stream.read(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", self._stream.read(8))
            whole += self._stream.read(size)
            if first & 0x80:
                return whole

    # -- what a person does
    # --------------------------------------------------------------------------------------------

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
    assert CHROMIUM is not None
    profile = folder / "profile"
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
        "--disable-dev-shm-usage", "--no-first-run",
               "--disable-background-networking", "--disable-component-update",
               "--disable-extensions", "--hide-scrollbars",
               "--remote-debugging-port=0", f"--user-data-dir={profile}",
               "about:blank"]  # fmt: skip
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        port = _port(profile / "DevToolsActivePort", process)
        opened = Tab("127.0.0.1", port, _target(port))
        try:
            yield opened
        finally:
            opened.close()
    finally:
        process.terminate()
        process.wait(SECONDS)


def _port(file, process):
    late = time.monotonic() + SECONDS
    while not (file.is_file() and "\n" in file.read_text()):
        assert process.poll() is None, "Chromium ended at once"
        assert time.monotonic() < late, "Chromium did not come up"
        time.sleep(0.05)
    return int(file.read_text().split()[0])


def _target(port):
    """Path of the debugger of the tab that is open."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    late = time.monotonic() + SECONDS
    while True:
        connection.request("GET", "/json/list")
        pages = [
            page for page in json.loads(connection.getresponse().read()) if page["type"] == "page"
        ]
        if pages:
            connection.close()
            return str(pages[0]["webSocketDebuggerUrl"]).partition(f":{port}")[2]
        assert time.monotonic() < late, "Chromium opened no tab"
        time.sleep(0.05)


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
