"""A server whose LLM calls a tool twice, and then answers."""

import json

from starlette.responses import JSONResponse
from starlette.routing import Route

from feval.serving.server import METHODS, Server

QUESTION = "What is 2 + 3 + 4? Use the tool for each sum."


class AddingServer:
    """A server whose LLM adds 2 and 3, then 4, by a tool, and then answers."""

    def __init__(self):
        self.asked = 0

    def close(self):
        pass

    def server(self):
        async def answer(request):
            self.asked += 1
            fields = await request.json()
            messages = fields["messages"]
            turn = sum(each["role"] == "assistant" for each in messages)
            said, reason = {"content": "The answer is 9."}, "stop"
            # that one ends by a tool
            ends = "final_answer" in json.dumps(fields["tools"])
            if turn < 2 + ends:
                own = [{"a": 2, "b": 3}, {"b": 4, "a": 5}, {"answer": said["content"]}][turn]
                name = "add" if turn < 2 else "final_answer"
                function = {"name": name, "arguments": json.dumps(own)}
                call = {"id": f"id-{self.asked}", "type": "function", "function": function}
                said, reason = {"content": None, "tool_calls": [call]}, "tool_calls"
            choice = {"index": 0, "message": {"role": "assistant"} | said, "finish_reason": reason}
            usage = {"prompt_tokens": 10 * len(messages), "completion_tokens": 5, "total_tokens": 0}
            return JSONResponse({"id": "x", "model": "m", "choices": [choice], "usage": usage})

        return Server(self, [Route("/{path:path}", answer, methods=METHODS)])
