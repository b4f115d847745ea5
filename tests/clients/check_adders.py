"""Agents that call tools: recorded by the proxy, then replayed offline with equal answers and
tokens.

    python check_adders.py AGENT PYTHON ...     pairs: an agent of adders.py, who has its package
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

from adding_server import QUESTION, AddingServer

from feval.serving import serve
from recorders.backends.openai_compatible import Endpoint
from recorders.journal import Journal
from recorders.servers.proxy import Proxy, proxy_server, seal_proxied

AGENTS = Path(__file__).parent / "adders.py"


def told(python: str, agent: str, url: str) -> dict[str, object]:
    done = subprocess.run(
        [python, AGENTS, agent, url, "gpt-4"],
        input=QUESTION, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{agent} at {url}:\n{done.stdout}\n{done.stderr}")
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    for agent, python in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        upstream = AddingServer()
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "r"
            with (
                upstream.server() as server,
                Journal.open(out.with_name("j"), {"proxy": server.url, "dataset": "sums"}) as own,
                proxy_server(Proxy(Endpoint(server.url), own, "sums")) as proxy,
            ):
                live = told(python, agent, proxy.url)
                seal_proxied(own, out, dataset="sums", answer_kind="number")
            asked = upstream.asked
            with serve(out) as server:
                replayed = told(python, agent, server.url)
                ledger = server.application.ledger()["runs"][0]
        assert replayed == live, (live, replayed)
        assert (ledger["requests"], ledger["output_tokens"]) == (asked, live["tokens"]), ledger
        print(f"{agent:24} {asked} turns, {live}")  # noqa: T201  the table of agents


main()
