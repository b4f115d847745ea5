#!/bin/sh
# Shows feval at work, after making the virtual environment if there is none: sh examples/demo.sh [feval demo's options]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/.ci/venv.sh"
feval_venv "$root"
"$venv/bin/feval" demo "$@"
[ "$(command -v feval)" = "$venv/bin/feval" ] || feval_say "
The command feval is $venv/bin/feval; this puts it on your path:  . $venv/bin/activate"
