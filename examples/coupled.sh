#!/bin/sh
# Two of the built-in models on word problems, with shared noise and with noise of their own, compared (docs/coupling.md).
# The default, 200 questions and 40 calls each, needs a few minutes of one core.
#
#   sh examples/coupled.sh OUT [QUESTIONS [SAMPLES]]
set -eu
usage="usage: sh examples/coupled.sh OUT [QUESTIONS [SAMPLES]]"
case ${1:?$usage} in -h | --help) echo "$usage" && exit ;; esac
out=$1
set -- --dataset tiny_sums --first "${2:-200}" --samples "${3:-40}"
mkdir -p "$out"
echo "noise_seed = 7" > "$out/noise.toml"
for size in 42k 90k; do
    feval record --quiet "$@" --llm "feval/tiny-$size" --set coupled=true --settings "$out/noise.toml" --out "$out/$size-coupled"
    feval record --quiet "$@" --llm "feval/tiny-$size@independent" --out "$out/$size-independent"
done
feval couple --recording "$out/42k-coupled" --recording "$out/90k-coupled" \
    --independent "$out/42k-independent" --independent "$out/90k-independent" --out "$out/couple"
