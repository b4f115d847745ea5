"""Agents of several packages, which were never told about feval: each adds by a tool.

    python adders.py AGENT URL MODEL < QUESTION     URL ends with /v1

Prints JSON: the answer, and all output tokens that the agent saw.
"""

import asyncio
import json
import sys


def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: the first number
        b: the second number
    """
    return a + b


def openai_agents(url, model, question, kind="OpenAIChatCompletionsModel"):
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    llm = getattr(agents, kind)(model, AsyncOpenAI(base_url=url, api_key="agents"))
    agent = agents.Agent(name="adds", model=llm, tools=[agents.function_tool(add)])
    result = asyncio.run(agents.Runner.run(agent, question))
    return result.final_output, result.context_wrapper.usage.output_tokens


def openai_agents_responses(url, model, question):
    return openai_agents(url, model, question, "OpenAIResponsesModel")


def pydantic_ai(url, model, question):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=url, api_key="agents")
    agent = Agent(OpenAIChatModel(model, provider=provider), tools=[add])
    result = agent.run_sync(question)
    return result.output, result.usage.output_tokens


def langgraph(url, model, question):
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    llm = ChatOpenAI(model=model, base_url=url, api_key="agents")
    agent = create_agent(llm, [tool(add)])
    messages = agent.invoke({"messages": [("user", question)]})["messages"]
    tokens = [own.usage_metadata["output_tokens"] for own in messages if own.type == "ai"]
    return messages[-1].content, sum(tokens)


def smolagents(url, model, question):
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    llm = OpenAIServerModel(model_id=model, api_base=url, api_key="agents")
    agent = ToolCallingAgent(tools=[tool(add)], model=llm, verbosity_level=0)
    result = agent.run(question, return_full_result=True)
    return str(result.output), result.token_usage.output_tokens


def instructor(url, model, question):
    from instructor import from_openai
    from openai import OpenAI
    from pydantic import create_model

    client = from_openai(OpenAI(base_url=url, api_key="agents"))
    found, reply = client.chat.completions.create_with_completion(
        model=model,
        messages=[{"role": "user", "content": question}],
        response_model=create_model("add", a=(int, ...), b=(int, ...)),
    )
    return found.model_dump(), reply.usage.completion_tokens


def main():
    name, url, model = sys.argv[1:]
    answer, tokens = globals()[name](url, model, sys.stdin.read())
    sys.stdout.write("\n" + json.dumps({"answer": answer, "tokens": tokens}))


main()
