"""What uvicorn costs by itself: it reads the body and answers with the same bytes every time. Run
it as a process.

    python -m benchmarks.bare_asgi BYTES

With httptools and uvloop where they are installed, as `feval serve`. Prints its port when it
listens.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import uvicorn


def main(size: int) -> None:
    """Serve until killed."""
    body = b'{"text":"' + b"x" * (size - 11) + b'"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]

    async def application(_: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        application,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
    )
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[1]))
