#!/bin/sh
# Makes the recording that comes with feval, which `feval demo` shows: three of the built-in models, 200 word problems, 40 chains
# of thought each. Needs a few minutes of one core. The recording hash is in tests/recorders/test_demo.py.
#
# `OUT-depth` is the recording with probes, of one of the models.
#
#   sh examples/record_demo.sh OUT
set -eu
usage="usage: sh examples/record_demo.sh OUT"
case ${1:?$usage} in -h | --help) echo "$usage" && exit ;; esac
out=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for size in 30k 42k 160k; do
    feval record --dataset tiny_sums --llm "feval/tiny-$size" --samples 40 --temperature 1 --max-tokens 120 --seed 0 \
        --out "$work/$size"
done
feval merge "$work/30k" "$work/42k" "$work/160k" --out "$out"
feval verify "$out"
feval record --dataset tiny_sums --llm feval/tiny-42k --first 100 --samples 20 --temperature 1 --max-tokens 120 --seed 0 \
    --probe-every 8 --out "$out-depth"
