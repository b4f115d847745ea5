"""HTTP servers on loopback, each in a thread of its own."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that hung up is no news."""


class Loopback:
    """A server whose connections a class answers, running inside a `with` block."""

    def __init__(self, handler):
        self._server = _Quiet(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def port(self):
        return int(self._server.server_address[1])

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Server(Loopback):
    """`answer(path, body)` gives (status, JSON value or bytes) for each request; the body of one
    without any is `None`.
    """

    def __init__(self, answer):
        self.seen = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(
                    self.rfile.read(int(self.headers["content-length"] or 0)) or "null"
                )
                outer.seen.append(
                    (self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                )
                status, value = answer(self.path, body)
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                if 300 <= status < 400:
                    self.send_header("location", "http://127.0.0.1:9/elsewhere")
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST  # noqa: N815  as the base class calls it

            def log_message(self, *_):
                """Keep standard error clean."""

        super().__init__(Handler)
