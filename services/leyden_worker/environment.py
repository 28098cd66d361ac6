"""The environment of agents and graders: an ordinary one, pointed at Leyden. It holds none of Leyden's own settings.

Whatever the worker inherited reaches them (an agent may need its search key), but no LEYDEN_ variable: these hold the
signing key and the passwords of Redis and the object store.
"""

import hashlib
import os
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from leyden_contracts import RunSpec
from leyden_ledger import Claim
from leyden_runtime.tokens import Scope, Tokens

_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_API_KEY")
"""Where each vendor's clients look for their key: the attempt's token."""
ATTEMPT_VARIABLES = frozenset({*_KEYS, "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_RESOURCE_ATTRIBUTES", "TRACEPARENT"})
"""Those whose value differs from attempt to attempt."""
_RIVAL = "ANTHROPIC_AUTH_TOKEN"
"""Some of Anthropic's clients would send this, the user's own, in place of the key."""
_PLACEHOLDER = "set-for-each-attempt"
"""A client that is made while the module is imported needs some key; the gateway refuses this one."""
_TOKEN_MARGIN_S = 120.0
"""An agent's last spans may arrive this long after its deadline."""


class Environments:
    """Makes the environments of one worker's processes."""

    def __init__(
        self, gateway_url: str, collector_url: str, tokens: Tokens, inherited: Mapping[str, str] = os.environ
    ) -> None:
        self._tokens = tokens
        self._inherited = {name: value for name, value in inherited.items() if not name.startswith("LEYDEN_")}
        self._fixed = {
            "OPENAI_BASE_URL": f"{gateway_url.rstrip('/')}/v1",
            "OPENAI_MODEL": "policy",
            "ANTHROPIC_BASE_URL": gateway_url.rstrip("/"),
            "OLLAMA_HOST": gateway_url.rstrip("/"),
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector_url.rstrip("/"),
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            **_no_proxy(self._inherited, gateway_url, collector_url),
        }

    def grader(self) -> dict[str, str]:
        """Return the environment of graders: what the worker inherited. No token: nothing here can act as an agent."""
        return dict(self._inherited)

    def agent_import(self) -> dict[str, str]:
        """Return the environment in which an agent's module is imported, before there is an attempt."""
        # Without what would lead the agent's spans, or a password in their headers, elsewhere.
        kept = {
            name: value
            for name, value in self._inherited.items()
            if name not in {*ATTEMPT_VARIABLES, _RIVAL} and not name.startswith("OTEL_EXPORTER_OTLP_")
        }
        return {**kept, **self._fixed, **dict.fromkeys(_KEYS, _PLACEHOLDER)}

    def attempt(self, claim: Claim, spec: RunSpec) -> dict[str, str]:
        """Return what `agent_import` lacks for one attempt."""
        token = self._tokens.mint(
            Scope.ATTEMPT,
            spec.episodes.timeout_s + _TOKEN_MARGIN_S,
            run=claim.run,
            episode=claim.episode,
            attempt=claim.attempt,
        )
        marks = f"leyden.run={claim.run},leyden.episode={claim.episode},leyden.attempt={claim.attempt}"
        own = self._inherited.get("OTEL_RESOURCE_ATTRIBUTES")
        return {
            **dict.fromkeys(_KEYS, token),
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=" + quote(f"Bearer {token}"),
            "OTEL_RESOURCE_ATTRIBUTES": f"{own},{marks}" if own else marks,
            "TRACEPARENT": trace_parent(claim.run, claim.episode, claim.attempt),
        }


def trace_parent(run: str, episode: str, attempt: int) -> str:
    """Return the W3C `traceparent` that joins the agent's own spans to the gateway's, which use the same trace id."""
    digest = hashlib.sha256(f"{run}/{episode}/{attempt}".encode()).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-01"


def _no_proxy(inherited: Mapping[str, str], *urls: str) -> dict[str, str]:
    # A company's proxy between the agent and a gateway on this machine or in this cluster would only break it.
    if not any(name.lower() in ("http_proxy", "https_proxy", "all_proxy") for name in inherited):
        return {}
    before = inherited.get("no_proxy") or inherited.get("NO_PROXY") or ""
    value = ",".join([*filter(None, [before]), *(urlsplit(url).hostname or "" for url in urls)])
    return {"no_proxy": value, "NO_PROXY": value}
