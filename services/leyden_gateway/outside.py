"""Calls to outside OpenAI-compatible providers, for roles that are not trained."""

import aiohttp
import msgspec
from pydantic import BaseModel, ConfigDict, HttpUrl, SecretStr

from leyden_gateway.errors import ApiError
from leyden_gateway.plan import Plan
from leyden_gateway.reply import NOTHING, Reply, text_message
from leyden_traces import FINISH_REASONS, OUTSIDE


class Provider(BaseModel):
    """One provider, from the gateway's settings: a run names it, and never sees its key."""

    model_config = ConfigDict(extra="forbid")

    url: HttpUrl
    """Up to and with `/v1`."""
    api_key: SecretStr


class _Choice(msgspec.Struct):
    message: msgspec.Raw = NOTHING
    text: str = ""
    finish_reason: str | None = None
    logprobs: msgspec.Raw = NOTHING


class _Reply(msgspec.Struct):
    choices: list[_Choice]
    id: str = ""
    created: int = 0
    usage: msgspec.Raw = msgspec.Raw(b"{}")


_REPLY = msgspec.json.Decoder(_Reply)


class Providers:
    """The providers that the operator has set up."""

    def __init__(self, session: aiohttp.ClientSession, known: dict[str, Provider], timeout_s: float) -> None:
        self._session = session
        self._known = known
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=timeout_s)

    async def call(self, plan: Plan) -> tuple[str, Reply]:
        """Return who answered, in place of a replica's id, and the reply, which has no tokens.

        Raises:
            ApiError: 404 without such a provider; the provider's own refusals; 502 and 504 if it fails.
        """
        role = plan.spec.roles[plan.role]
        assert role.outside is not None
        provider = self._known.get(role.outside.provider)
        if provider is None:
            names = ", ".join(f"`{name}`" for name in sorted(self._known)) or "none"
            message = f"this gateway has no provider `{role.outside.provider}`; it has {names}"
            raise ApiError(404, "provider_not_found", message + ". Set LEYDEN_GATEWAY_PROVIDERS")
        asked = {**plan.fields, "model": role.outside.model, "stream": False}
        if plan.show_logprobs:
            asked.setdefault("logprobs", True)
        body = msgspec.json.encode(asked)
        return OUTSIDE + role.outside.provider, _read(*await self._post(provider, plan.endpoint, body))

    async def _post(self, provider: Provider, endpoint: str, body: bytes) -> tuple[int, bytes]:
        url = f"{str(provider.url).rstrip('/')}/{endpoint}"
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {provider.api_key.get_secret_value()}",
        }
        try:
            # No redirects: they could lead the key elsewhere.
            async with self._session.post(
                url, data=body, headers=headers, timeout=self._timeout, allow_redirects=False
            ) as response:
                return response.status, await response.read()
        except TimeoutError as error:
            raise ApiError(504, "provider_timeout", "the provider did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(502, "provider_error", f"the provider cannot be reached: {error!r}") from error


def _read(status: int, body: bytes) -> Reply:
    if status in (401, 403):
        raise ApiError(502, "provider_refused", "the provider refused the gateway's key: see LEYDEN_GATEWAY_PROVIDERS")
    if status != 200:
        raise ApiError(status if status >= 400 else 502, "provider_refused", body[:2000].decode(errors="replace"))
    try:
        reply = _REPLY.decode(body)
        (choice,) = reply.choices
    except ValueError as error:
        raise ApiError(502, "bad_provider_reply", f"the provider's reply cannot be read: {error}") from error
    return Reply(
        id=reply.id,
        created=reply.created,
        message=text_message(choice.text) if choice.message == NOTHING else choice.message,
        finish_reason=choice.finish_reason if choice.finish_reason in FINISH_REASONS else "stop",
        usage=reply.usage,
        prompt_ids=b"",
        response_ids=b"",
        logprobs=b"",
        shown_logprobs=choice.logprobs,
    )
