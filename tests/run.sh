#!/bin/sh
# Runs the tests on all cores, after making the virtual environment if there is none: sh tests/run.sh [pytest's options]
# The slow ones run in .ci/run, or by `sh tests/run.sh -m slow`.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/.ci/venv.sh"
feval_venv "$root" dev
cd "$root"
unset PYTHONDONTWRITEBYTECODE # or every program that a test starts compiles feval anew
# Each worker begins with its share of the tests in a row, so that what a module's tests share is made once.
exec "$venv/bin/python" -m pytest -n auto --dist worksteal -m "not slow" "$@"
