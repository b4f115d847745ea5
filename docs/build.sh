#!/bin/sh
# Builds the documentation site into build/docs; a warning is an error: sh docs/build.sh [sphinx-build's options]
# Makes the virtual environment if there is none, as tests/run.sh does.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/.ci/venv.sh"
feval_venv "$root" dev
cd "$root"
"$venv/bin/python" -m sphinx --quiet --fresh-env --write-all --fail-on-warning --keep-going --builder html --doctree-dir build/doctrees "$@" docs build/docs
echo "The site is in build/docs; open build/docs/index.html."
