"""The process that runs math-verify: `python -m feval.answers._math_worker`, started by
`feval.answers.equality`.

It reads one JSON object per line, {"left": TeX, "right": TeX, "seconds": limit}, and writes one,
{"equal": true or false}; its first line, {"ready": version}, says that the imports are done. It
ends when its input does, and ends itself when a comparison outlasts its limit, so that no process
is left computing after a parent that was killed.

math-verify gets formulas only: its reader of plain expressions goes through SymPy's `parse_expr`,
which evaluates Python.
"""

from __future__ import annotations

import faulthandler
import json
import re
import sys
from functools import lru_cache
from typing import Any

_RELATION = re.compile(r"[=<>]|\\(?:le|ge|ne|lt|gt|in|subset|approx|equiv)(?![a-z])")
_MEMORY = 4 << 30  # bytes of address space; a tower of powers must not take the machine with it


def main() -> None:
    """Answer comparisons until the input ends."""
    _limit_memory()
    import importlib.metadata

    import math_verify

    formulas = [math_verify.LatexExtractionConfig(boxed_match_priority=-1)]

    @lru_cache(4096)  # every answer of a question is compared with several others
    def parsed(tex: str) -> list[Any]:
        expressions: list[Any] = math_verify.parse(
            f"${tex}$", formulas, fallback_mode="no_fallback", parsing_timeout=None
        )
        return expressions

    _write({"ready": importlib.metadata.version("math-verify")})
    for line in sys.stdin:
        pair = json.loads(line)
        faulthandler.dump_traceback_later(pair["seconds"], exit=True)
        left, right = parsed(pair["left"]), parsed(pair["right"])
        equal = bool(left and right and _verified(math_verify.verify, pair, left, right))
        faulthandler.cancel_dump_traceback_later()
        _write({"equal": equal})


def _verified(verify: Any, pair: dict[str, Any], left: list[Any], right: list[Any]) -> bool:
    """Whether two parsed formulas are equal. The order matters where one is a relation: "5" is
    answered by "x=5".
    """
    if verify(left, right, timeout_seconds=None):
        return True
    related = any(_RELATION.search(pair[side]) for side in ("left", "right"))
    return related and bool(verify(right, left, timeout_seconds=None))


def _write(reply: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    # not a POSIX system, or one that knows no such limit
    except (ImportError, OSError, ValueError):
        return


if __name__ == "__main__":
    main()
