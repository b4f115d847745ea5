#!/bin/sh
# Runs the tests on all cores, after making the virtual environment if there is none: sh tests/run.sh [pytest's options]
# The slow ones run in .ci/run, or by `sh tests/run.sh -m slow`.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/.ci/venv.sh"
feval_venv "$root" dev
cd "$root"
exec "$venv/bin/python" -m pytest -n auto -m "not slow" "$@"
