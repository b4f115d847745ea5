"""Run a script of the FEval-TTC reference package over feval's recordings: `python -m feval.compat
SCRIPT.py [ARGUMENT ...]`.

The script's `from feval_ttc import ...` gets `feval.compat.feval_ttc`, also where the reference
package is installed. feval installs no module of that name, which is the reference package's.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from feval.compat import feval_ttc


def main() -> None:
    """Run the script named first, with the arguments behind it."""
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        sys.exit(
            "usage: python -m feval.compat SCRIPT.py [ARGUMENT ...], with FEVAL_RECORDING naming"
            " the recordings"
        )
    sys.modules["feval_ttc"] = feval_ttc
    del sys.argv[0]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
