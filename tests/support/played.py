"""A replica that plays vLLM where the embedded engine cannot: text of a given JSON schema, whatever the model is."""

import json

from aiohttp import web

from support.gateway import Engine, completion

STRUCTURED = {"answer": 95}


class Replica(Engine):
    """Chat and text completions, whole and streamed."""

    def app(self) -> web.Application:
        app = super().app()
        app.add_routes([web.post("/v1/completions", self._complete)])
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        ask = await _json(request)
        if "response_format" in ask and not self.misbehave:
            self.misbehave.append(self._structured)
        return await super()._chat(request)

    async def _structured(self, request: web.Request, ask: dict) -> web.StreamResponse:
        body = completion({**ask, "tools": None})
        body["choices"][0]["message"]["content"] = json.dumps(STRUCTURED)
        return await self.stream(request, body) if ask["stream"] else self.reply(body)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        """Answer in vLLM's shape of text completions."""
        ask = await _json(request)
        self.asked.append(ask)
        body = _as_text(completion({**ask, "tools": None}))
        return await self._stream_text(request, body) if ask["stream"] else self.reply(body)

    async def _stream_text(self, request: web.Request, body: dict) -> web.StreamResponse:
        self.answered.append(body)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        (choice,) = body["choices"]
        values = choice["logprobs"]["token_logprobs"]
        for place, id in enumerate(choice["token_ids"]):
            last = place == len(values) - 1
            piece = {
                "index": 0,
                "text": choice["text"] if last else "",
                "token_ids": [id],
                "prompt_token_ids": choice["prompt_token_ids"] if place == 0 else None,
                "logprobs": {"token_logprobs": [values[place]], "tokens": ["t"]},
                "finish_reason": choice["finish_reason"] if last else None,
            }
            await answer.write(_event({**body, "choices": [piece], "usage": None}))
        await answer.write(_event({**body, "choices": []}) + b"data: [DONE]\n\n")
        return answer


async def _json(request: web.Request) -> dict:
    try:
        return await request.json()
    except (ValueError, RecursionError) as error:
        raise web.HTTPBadRequest(text=str(error)) from error


def _event(data: dict) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _as_text(body: dict) -> dict:
    """Return a chat completion in vLLM's shape of text completions."""
    (choice,) = body["choices"]
    values = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    said = {"text": choice.pop("message")["content"], "prompt_token_ids": body["prompt_token_ids"]}
    logprobs = {"token_logprobs": values, "tokens": ["t"] * len(values)}
    return {**body, "object": "text_completion", "choices": [{**choice, **said, "logprobs": logprobs}]}
