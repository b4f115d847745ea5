#!/bin/sh
# Votes through real clients against a recording that is served; accuracy, tokens and ledger are those of `feval run`:
#   sh tests/clients/run.sh [CLIENT ...]        all clients, or some; docs/serving.md has the table
# Each client is installed in an environment of its own below FEVAL_CLIENTS (a temporary folder if that is not set).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/.ci/venv.sh"
feval_venv "$root" dev
own=$venv/bin/python
folder=${FEVAL_CLIENTS:-$(mktemp -d)}
[ -n "${FEVAL_CLIENTS:-}" ] || trap 'rm -rf "$folder"' EXIT
export LITELLM_LOCAL_MODEL_COST_MAP=True PROMPTFOO_DISABLE_TELEMETRY=1 PROMPTFOO_DISABLE_UPDATE=1

# add PYTHON PACKAGE...: installs packages; by uv where it is, as in CI, which is faster.
add() {
    if [ -x "$venv/bin/uv" ]; then
        "$venv/bin/uv" pip install --quiet --python "$@"
        return
    fi
    python=$1
    shift
    "$own" -m pip --python "$python" install --quiet "$@"
}

packages() {
    case $1 in
        openai | azure | responses) echo openai==3.57.0 ;;
        openai_2) echo openai==2.54.0 ;;
        openai_0) echo openai==0.28.1 ;;
        anthropic) echo anthropic==2.14.0 ;;
        gemini) echo google-genai==3.6.1 ;;
        ollama) echo ollama==0.6.3 ;;
        pydantic_ai | agent_pydantic_ai) echo 'pydantic-ai-slim[openai]==2.68.0' ;;
        openai_agents | agent_openai_agents) echo openai-agents==0.24.0 ;;
        litellm) echo litellm==1.110.2 ;;
        langchain | agent_langgraph) echo langchain==1.5.2 langchain-openai==1.7.4 langgraph==1.2.24 ;;
        llama_index) echo llama-index-llms-openai-like==0.8.1 ;;
        dspy | cache_dspy) echo dspy==3.4.1 ;;
        haystack) echo haystack-ai==3.4.1 ;;
        smolagents | agent_smolagents) echo 'smolagents[openai]==1.26.0' ;;
        guidance) echo guidance==0.3.1 openai==3.57.0 ;;
        llm) echo llm==0.36 ;;
        instructor | agent_instructor) echo instructor==1.17.0 ;;
        inspect_ai | cache_inspect_ai) echo inspect-ai==0.3.285 openai==3.57.0 ;;
        lm_eval | cache_lm_eval*) echo 'lm-eval[api]==0.4.13' ;;
        its_hub) echo 'its-hub[lm]==1.2.0' ;;
        # what its server imports; all that optillm 0.4.0 asks for has torch, spacy and gradio
        optillm*) echo openai==3.57.0 aiohttp cerebras_cloud_sdk flask math-verify networkx numpy pyyaml 'z3-solver<=4.15.4' ;;
        npm_openai) echo openai@6.49.0 ;;
        npm_vercel) echo ai@6.0.326 @ai-sdk/openai@3.0.141 ;;
        npm_anthropic) echo @anthropic-ai/sdk@1.14.0 ;;
        npm_gemini) echo @google/genai@2.32.0 ;;
        npm_ollama) echo ollama@0.6.4 ;;
        # it needs Node 22; its optional packages have 1 GB
        *_promptfoo) echo --omit=optional promptfoo@0.123.1 node@22.23.3 @libsql/linux-x64-gnu@0.5.29 ;;
        curl) ;;
        *) feval_stop "$1 is none of the clients of tests/clients/run.sh." ;;
    esac
}

[ $# -gt 0 ] || set -- openai openai_2 openai_0 azure responses anthropic gemini ollama pydantic_ai openai_agents litellm \
    langchain llama_index dspy haystack smolagents guidance llm instructor inspect_ai lm_eval its_hub optillm optillm_votes \
    npm_openai npm_vercel npm_anthropic npm_gemini npm_ollama npm_promptfoo curl \
    agent_pydantic_ai agent_openai_agents agent_langgraph agent_smolagents agent_instructor \
    cache_dspy cache_inspect_ai cache_lm_eval cache_lm_eval_requests cache_promptfoo
pairs='' agents='' caches=''
for client; do
    needs=$(packages "$client")
    place=$folder/$(echo "$needs" | tr -c 'a-zA-Z0-9.\n' _)
    case $client in
        npm_* | *_promptfoo)
            # shellcheck disable=SC2086  # several packages
            [ -d "$place/node_modules" ] || npm install --silent --no-save --prefix "$place" $needs
            who=$place
            ;;
        *)
            if [ ! -e "$place/bin/python" ]; then
                "$own" -m venv --without-pip "$place"
                # shellcheck disable=SC2086
                [ -z "$needs" ] || add "$place/bin/python" $needs
                case $client in
                    optillm*) add "$place/bin/python" --no-deps optillm==0.4.0 ;;
                esac
            fi
            who=$place/bin/python
            ;;
    esac
    case $client in
        agent_*) agents="$agents ${client#agent_} $who" ;;
        cache_*) caches="$caches ${client#cache_} $who" ;;
        *) pairs="$pairs ${client#npm_} $who" ;;
    esac
done
# shellcheck disable=SC2086
"$own" "$root/tests/clients/check.py" $pairs
# shellcheck disable=SC2086
"$own" "$root/tests/clients/check_adders.py" $agents
# shellcheck disable=SC2086
"$own" "$root/tests/clients/check_caches.py" $caches
