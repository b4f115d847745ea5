"""Votes on questions through a client of one vendor; this file was never told about feval.

    python vote.py CLIENT URL MODEL N whole|streamed < QUESTIONS.json

Prints JSON: the texts of N replies per question, and all output tokens that the client saw.
"""

import json
import sys

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


def main():
    name, url, model, number, mode = sys.argv[1:]
    client = globals()[name](url, model, mode == "streamed")
    questions = json.load(sys.stdin)
    said = [[client(text) for _ in range(int(number))] for text in questions]
    texts = [[text for text, _ in own] for own in said]
    tokens = sum(tokens for own in said for _, tokens in own)
    json.dump({"texts": texts, "tokens": tokens}, sys.stdout)


main()
