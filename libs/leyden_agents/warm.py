"""Pay an SDK's first-use costs once, in the process that forks the attempts.

The first request of the `openai` SDK in a process costs a third of a second of CPU: lazy imports, pydantic schemas,
the platform's name. A child forked after `warm_sdk` finds all of that done.
"""

import sys
from typing import Any

REPLY: dict[str, Any] = {
    "id": "warm",
    "object": "chat.completion",
    "created": 0,
    "model": "warm",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


def warm_sdk() -> bool:
    """Make one chat completion that never leaves the process. Do nothing (False) if the agent imported no `openai`.

    Starts no thread and opens no socket, so forking afterwards is safe.
    """
    if "openai" not in sys.modules:
        return False
    import encodings.idna  # noqa: F401  (looking up a host needs it)

    from openai import OpenAI

    with OpenAI(api_key="warm", base_url="http://127.0.0.1/v1"):
        pass  # The default transport is built, then closed: its modules and certificates are now loaded.
    http: Any = sys.modules.get("httpx2") or sys.modules["httpx"]  # whichever this SDK's version stands on
    transport = http.MockTransport(lambda request: http.Response(200, json=REPLY))
    with OpenAI(api_key="warm", base_url="http://127.0.0.1/v1", http_client=http.Client(transport=transport)) as client:
        client.chat.completions.create(model="warm", messages=[{"role": "user", "content": "warm"}])
    return True
