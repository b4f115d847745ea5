"""Weigh the project against the ceilings in `.ci/weight.toml`: `python .ci/weight.py [--folders]`,
from the repository root.

What weighs is what a reader has to hold: tokens of code (names, operators, literals; no comments,
docstrings or white space), of the library with its layouts in TOML (a token for each key and value)
and of the tests; modules of the library; words of README and docs. Lines are no measure, since they
grow and shrink with their length. A commit that raises a ceiling says what users got.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def tracked(*patterns: str) -> list[Path]:
    """Return the files that git tracks, and that are there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *patterns], capture_output=True, text=True, check=True
    ).stdout
    return [Path(name) for name in listed.split("\0") if name and Path(name).is_file()]


def code_tokens(path: Path) -> int:
    """Return how many tokens of code a Python file has."""
    with path.open("rb") as file:
        found = [each for each in tokenize.tokenize(file.readline) if each.type not in LAYOUT]
    return len(found) - len(
        set(docstrings(ast.parse(path.read_bytes()))) & {each.start for each in found}
    )


def docstrings(tree: ast.AST) -> Iterator[tuple[int, int]]:
    """Yield where strings begin that stand alone as a statement."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.col_offset


def toml_tokens(value: Any) -> int:
    """Return how many keys and values a TOML document has."""
    if isinstance(value, dict):
        return sum(1 + toml_tokens(part) for part in value.values())
    return sum(map(toml_tokens, value)) if isinstance(value, list) else 1


def main() -> None:
    """Print the weights, and end with 1 where one is above its ceiling."""
    library = {path: code_tokens(path) for path in tracked("feval/*.py", "recorders/*.py")}
    layouts = sum(
        toml_tokens(tomllib.loads(path.read_text("utf-8"))) for path in tracked("feval/*.toml")
    )
    weights = {
        "library": sum(library.values()) + layouts,
        "modules": len(library),
        "tests": sum(map(code_tokens, tracked("tests/*.py"))),
        "words": sum(
            len(re.findall(r"\S+", path.read_text("utf-8")))
            for path in tracked("README.md", "docs/*.md")
        ),
    }
    if "--folders" in sys.argv:
        folders = Counter[str]()
        for path, tokens in library.items():
            folders["/".join(path.parts[: 2 if len(path.parts) > 2 else 1])] += tokens
        print("\n".join(f"{tokens:>8,}  {folder}" for folder, tokens in folders.most_common()))
    ceilings = tomllib.loads(Path(".ci/weight.toml").read_text("utf-8"))
    print(
        "\n".join(
            f"{name:<8} {weight:>8,} of {ceilings[name]:,}" for name, weight in weights.items()
        )
    )
    too_heavy = [name for name, weight in weights.items() if weight > ceilings[name]]
    if too_heavy:
        sys.exit(
            f"Above its ceiling: {', '.join(too_heavy)}. Take something away, or raise it with what"
            " users get for it."
        )


if __name__ == "__main__":
    main()
