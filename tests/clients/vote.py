"""Votes on questions through a client of one vendor; this file was never told about feval.

    python vote.py CLIENT URL MODEL N whole|streamed [OPTIONS.json] < QUESTIONS.json

Prints JSON: the texts of N replies per question, and all output tokens that the client saw.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

USAGE = {"include_usage": True}


def of_chat(create, model, stream, **fixed):
    """Asks by a function that takes and returns what OpenAI's `chat.completions.create` does."""

    def ask(text):
        asked = fixed | {"model": model, "messages": [{"role": "user", "content": text}]}
        if not stream:
            reply = create(**asked)
            return reply.choices[0].message.content, reply.usage.completion_tokens
        chunks = [*create(**asked, stream=True, stream_options=USAGE)]
        words = [getattr(own.choices[0].delta, "content", "") for own in chunks if own.choices]
        return "".join(own or "" for own in words), chunks[-1].usage.completion_tokens

    return ask


def openai(url, model, stream):
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="votes")
    return of_chat(client.chat.completions.create, model, stream)


openai_2 = openai


def openai_0(url, model, stream):
    import openai as library

    library.api_base, library.api_key = f"{url}/v1", "votes"
    return of_chat(library.ChatCompletion.create, model, stream)


def azure(url, model, stream):
    from openai import AzureOpenAI

    client = AzureOpenAI(azure_endpoint=url, api_key="votes", api_version="2024-10-21")
    return of_chat(client.chat.completions.create, model, stream)


def litellm(url, model, stream):
    from litellm import completion

    own = {"api_base": url, "api_key": "votes", "max_tokens": 120}
    return of_chat(completion, f"anthropic/{model}", stream, **own)


def instructor(url, model, stream):
    from instructor import from_openai
    from openai import OpenAI

    client = from_openai(OpenAI(base_url=f"{url}/v1", api_key="votes"))
    return of_chat(client.chat.completions.create, model, stream, response_model=None)


def curl(url, model, stream):
    import subprocess

    def ask(text):
        asked = {"model": model, "messages": [{"role": "user", "content": text}]}
        if stream:
            asked |= {"stream": True, "stream_options": USAGE}
        sent = ["-H", "Authorization: Bearer votes", "-H", "Content-Type: application/json"]
        command = ["curl", "-sSN", f"{url}/v1/chat/completions", *sent, "-d", json.dumps(asked)]
        reply = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        if not stream:
            whole = json.loads(reply)
            return whole["choices"][0]["message"]["content"], whole["usage"]["completion_tokens"]
        *events, done = [own.removeprefix("data: ") for own in reply.split("\n\n") if own]
        chunks = [*map(json.loads, events)]
        assert done == "[DONE]"
        words = [own["choices"][0]["delta"].get("content", "") for own in chunks if own["choices"]]
        return "".join(words), chunks[-1]["usage"]["completion_tokens"]

    return ask


def responses(url, model, stream):
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="votes")

    def ask(text):
        if not stream:
            reply = client.responses.create(model=model, input=text)
            return reply.output_text, reply.usage.output_tokens
        with client.responses.stream(model=model, input=text) as events:
            words = [own.delta for own in events if own.type == "response.output_text.delta"]
            reply = events.get_final_response()
        assert "".join(words) == reply.output_text
        return reply.output_text, reply.usage.output_tokens

    return ask


def anthropic(url, model, stream):
    from anthropic import Anthropic

    client = Anthropic(base_url=url, api_key="votes")

    def ask(text):
        asked = {
            "model": model, "max_tokens": 512, "messages": [{"role": "user", "content": text}],
        }  # fmt: skip
        if not stream:
            reply = client.messages.create(**asked)
            return reply.content[-1].text, reply.usage.output_tokens
        with client.messages.stream(**asked) as events:
            words = [*events.text_stream]
            reply = events.get_final_message()
        assert "".join(words) == reply.content[-1].text
        return reply.content[-1].text, reply.usage.output_tokens

    return ask


def gemini(url, model, stream):
    from google import genai

    client = genai.Client(api_key="votes", http_options={"base_url": url})

    def ask(text):
        if not stream:
            reply = client.models.generate_content(model=model, contents=text)
            return reply.text, reply.usage_metadata.candidates_token_count
        chunks = [*client.models.generate_content_stream(model=model, contents=text)]
        words = [own.text or "" for own in chunks]
        return "".join(words), chunks[-1].usage_metadata.candidates_token_count

    return ask


def pydantic_ai(url, model, stream):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="votes")
    agent = Agent(OpenAIResponsesModel(model, provider=provider))

    def ask(text):
        if not stream:
            reply = agent.run_sync(text)
            return reply.output, reply.usage.output_tokens
        reply = agent.run_stream_sync(text)
        return reply.get_output(), reply.usage.output_tokens

    return ask


def openai_agents(url, model, stream):
    import asyncio

    from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="votes")
    # by its name alone, feval/tiny-42k would be an LLM of a provider called feval
    agent = Agent(name="votes", model=OpenAIResponsesModel(model, client))
    loop = asyncio.new_event_loop()

    async def streamed(text):
        result = Runner.run_streamed(agent, text)
        async for _ in result.stream_events():
            pass
        return result

    def ask(text):
        run = streamed(text) if stream else Runner.run(agent, text)
        result = loop.run_until_complete(run)
        return result.final_output, result.context_wrapper.usage.output_tokens

    return ask


def ollama(url, model, stream):
    from ollama import Client

    client = Client(host=url, headers={"Authorization": "Bearer votes"})

    def ask(text):
        asked = {"model": model, "messages": [{"role": "user", "content": text}]}
        if not stream:
            reply = client.chat(**asked)
            return reply.message.content, reply.eval_count
        chunks = [*client.chat(**asked, stream=True)]
        return "".join(own.message.content for own in chunks), chunks[-1].eval_count

    return ask


def langchain(url, model, stream):
    from langchain_core.messages import AIMessageChunk
    from langchain_openai import ChatOpenAI

    llm = ChatOpenAI(model=model, base_url=f"{url}/v1", api_key="votes", stream_usage=True)

    def ask(text):
        reply = sum(llm.stream(text), AIMessageChunk("")) if stream else llm.invoke(text)
        return reply.content, reply.usage_metadata["output_tokens"]

    return ask


def llama_index(url, model, stream):
    from llama_index.llms.openai_like import OpenAILike

    llm = OpenAILike(model=model, api_base=f"{url}/v1", api_key="votes", is_chat_model=True)

    def ask(text):
        if stream:
            *_, reply = llm.stream_complete(text, stream_options=USAGE)
        else:
            reply = llm.complete(text)
        return reply.text, reply.raw.usage.completion_tokens

    return ask


def dspy(url, model, _, cache=False):
    from dspy import LM

    llm = LM(f"openai/{model}", api_base=f"{url}/v1", api_key="votes", cache=cache)

    def ask(text):
        [said] = llm(text)
        return said, llm.history[-1]["usage"].get("completion_tokens", 0)

    return ask


def haystack(url, model, stream):
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.utils import Secret

    key = Secret.from_token("votes")
    llm = OpenAIChatGenerator(key, model, api_base_url=f"{url}/v1")
    streaming = {
        "streaming_callback": lambda _: None, "generation_kwargs": {"stream_options": USAGE},
    }  # fmt: skip

    def ask(text):
        [reply] = llm.run(text, **streaming if stream else {})["replies"]
        return reply.text, reply.meta["usage"]["completion_tokens"]

    return ask


def smolagents(url, model, stream):
    from smolagents import OpenAIServerModel

    llm = OpenAIServerModel(model, api_base=f"{url}/v1", api_key="votes")

    def ask(text):
        messages = [{"role": "user", "content": text}]
        replies = [*llm.generate_stream(messages)] if stream else [llm.generate(messages)]
        tokens = sum(own.token_usage.output_tokens for own in replies if own.token_usage)
        return "".join(own.content or "" for own in replies), tokens

    return ask


def guidance(url, model, _):
    from guidance import assistant, gen, models, user

    llm = models.OpenAI(model, api_key="votes", base_url=f"{url}/v1", echo=False)

    def ask(text):
        with user():
            asked = llm + text
        with assistant():
            reply = asked + gen("said")
        return reply["said"], reply._get_usage().output_tokens

    return ask


def llm(url, model, stream):
    from llm.default_plugins.openai_models import Chat

    own = Chat("votes", model_name=model, api_base=f"{url}/v1")

    def ask(text):
        reply = own.prompt(text, stream=stream, key="votes")
        return reply.text(), reply.usage().output

    return ask


def optillm(url, model, stream, **fixed):
    import os
    from threading import Thread

    from openai import OpenAI
    from optillm import server
    from werkzeug.serving import make_server

    os.environ["OPENAI_API_KEY"] = "votes"
    server.server_config["base_url"] = f"{url}/v1"
    server.load_plugins()
    front = make_server("127.0.0.1", 0, server.app)
    Thread(target=front.serve_forever, daemon=True).start()
    client = OpenAI(base_url=f"http://127.0.0.1:{front.port}/v1", api_key="votes")
    return of_chat(client.chat.completions.create, model, stream, **fixed)


def optillm_votes(url, model, _):
    def sample(questions, count):
        vote = {"optillm_approach": "majority_voting", "k": count}
        ask = optillm(url, model, False, extra_body=vote)
        replies = [ask(text) for text in questions]
        return [[text] for text, _ in replies], sum(tokens for _, tokens in replies)

    return sample


def its_hub(url, model, _):
    from its_hub import LMOrchestrator, OpenAICompatibleLanguageModel, SelfConsistency

    llm = OpenAICompatibleLanguageModel(f"{url}/v1", "votes", model)
    method = SelfConsistency(orchestrator=LMOrchestrator(max_concurrency=1))

    def sample(questions, count):
        votes = [method.infer(llm, text, count, return_response_only=False) for text in questions]
        texts = [[own["content"] for own in vote.responses] for vote in votes]
        return texts, sum(vote.usage.completion_tokens for vote in votes)

    return sample


def inspect_ai(url, model, stream, cache=False):
    import inspect_ai as library
    from inspect_ai.dataset import Sample
    from inspect_ai.model import get_model
    from inspect_ai.solver import generate

    own = {"base_url": f"{url}/v1", "api_key": "votes", "stream": stream}
    llm = get_model(f"openai-api/feval/{model}", **own)

    def sample(questions, count):
        dataset = [Sample(input=text, id=place) for place, text in enumerate(questions)]
        task = library.Task(dataset=dataset, solver=generate(cache=cache), epochs=count)
        with TemporaryDirectory() as logs:
            [log] = library.eval(task, model=llm, max_samples=1, display="none", log_dir=logs)
            replies = sorted(log.samples, key=lambda reply: (reply.id, reply.epoch))
        texts = [reply.output.completion for reply in replies]
        tokens = sum(reply.output.usage.output_tokens for reply in replies)
        return [texts[start : start + count] for start in range(0, len(texts), count)], tokens

    return sample


def lm_eval(url, model, _, do_sample=True, **caches):
    import os

    import yaml

    os.environ |= {"HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "votes"}
    from lm_eval import simple_evaluate

    examples = Path(__file__).parents[2] / "examples"
    task = yaml.safe_load((examples / "lm_eval" / "tiny_sums_vote.yaml").read_text())
    task["generation_kwargs"]["do_sample"] = do_sample
    task["dataset_kwargs"]["data_files"]["test"] = str(examples / "questions.jsonl")
    llm = {"model": model, "base_url": f"{url}/v1/chat/completions"}

    def sample(questions, count):
        found = simple_evaluate(
            "local-chat-completions",
            llm,
            [task | {"repeats": count}],
            apply_chat_template=True,
            **caches,
        )["samples"]["tiny_sums_vote"]
        assert [own["doc"]["question"] for own in found] == questions
        return [own["resps"][0] for own in found], None

    return sample


OWN_LOOPS = ("inspect_ai", "its_hub", "lm_eval", "optillm_votes")
"""Clients that sample by themselves; lm_eval does not say how many tokens."""


def main():
    name, url, model, number, mode, *options = sys.argv[1:]
    options = json.loads(*options or ["{}"])
    client = globals()[name](url, model, mode == "streamed", **options)
    questions, count = json.load(sys.stdin), int(number)
    if name in OWN_LOOPS:
        texts, tokens = client(questions, count)
    else:
        said = [[client(text) for _ in range(count)] for text in questions]
        texts = [[text for text, _ in own] for own in said]
        tokens = sum(tokens for own in said for _, tokens in own)
    sys.stdout.write("\n" + json.dumps({"texts": texts, "tokens": tokens}))


main()
