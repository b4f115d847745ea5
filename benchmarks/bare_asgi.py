"""What uvicorn costs by itself: it reads the body and answers with the same bytes every time. Run it as a process.

    python -m benchmarks.bare_asgi BYTES PARSER

PARSER is httptools (with uvloop) or h11 (with asyncio's own loop). Prints its port when it listens.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import uvicorn


def main(size: int, parser: str) -> None:
    """Serve until killed."""
    body = b'{"text":"' + b"x" * (size - 11) + b'"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]

    async def application(_: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    listener = socket.create_server(("127.0.0.1", 0))
    loop = "uvloop" if parser == "httptools" else "asyncio"
    config = uvicorn.Config(
        application, http=parser, loop=loop, ws="none", lifespan="off", log_config=None, log_level="critical",
        access_log=False,
    )  # fmt: skip
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
