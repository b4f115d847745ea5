#!/bin/sh
# Draws the pictures in docs/images anew, by the commands of the pages that show them: sh docs/pictures.sh
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/.ci/venv.sh"
feval_venv "$root" dev
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$venv/bin/python" -m feval demo --quiet --out demo
cp demo/curve.png "$root/docs/images/demo.png"
PYTHONPATH="$root/tests/support" "$venv/bin/python" -m pages tutorial
cp comparison/comparison.png "$root/docs/images/tutorial.png"
# The picture of real LLMs needs the set: its commands stand in README.md.
