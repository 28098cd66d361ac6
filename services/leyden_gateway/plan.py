"""What is to be done for one request: which policy version answers, and how it samples."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from leyden_contracts import RunSpec, adapter_name
from leyden_gateway.ask import Ask, Endpoint
from leyden_gateway.callers import Attempt
from leyden_gateway.permits import Permits
from leyden_gateway.replicas import Patience
from leyden_gateway.roles import RunCache
from leyden_gateway.sampling import imposed, wished
from leyden_gateway.versions import Versions
from leyden_ledger import CallPermit


@dataclass(frozen=True, slots=True)
class Plan:
    """One request, decided."""

    spec: RunSpec
    role: str
    version: int
    temperature: float
    fields: dict[str, Any]
    endpoint: Endpoint
    show_logprobs: bool
    sticky: str
    """Requests with the same text share a replica's prefix cache: the episode."""
    patience: Patience

    @property
    def outside(self) -> bool:
        """Whether an outside provider answers."""
        return self.spec.roles[self.role].outside is not None

    def sample(self, index: int) -> "Plan":
        """Return the plan for one of several samples: a seed that the agent gave would make them all alike."""
        seed = self.fields.get("seed")
        if seed is None or index == 0:
            return self
        value = msgspec.json.decode(seed) if isinstance(seed, msgspec.Raw) else seed
        return replace(self, fields={**self.fields, "seed": value + index}) if isinstance(value, int) else self

    @property
    def model(self) -> str:
        """The name by which replicas serve the version."""
        return self.spec.base_model if self.version == 0 else adapter_name(str(self.spec.id), self.role, self.version)


class Planner:
    """Asks the ledger: the fence, the purpose, the version."""

    def __init__(self, permits: Permits, runs: RunCache, versions: Versions, replica_wait_s: float) -> None:
        self._permits = permits
        self._runs = runs
        self._versions = versions
        self._replica_wait_s = replica_wait_s

    async def plan(self, attempt: Attempt, ask: Ask, role: str | None, agent: str | None) -> Plan:
        """Decide for a call of `attempt` that may name a `role` or its `agent`.

        Raises:
            Fenced, TooManyCalls, EpisodeNotFound, RunNotFound: the ledger's refusals.
            ApiError: 404 for an unknown model or role; 503 without a replica.
        """
        prompt, permit = await self._begin(attempt, ask, role, agent)
        sampled = imposed(ask, prompt.spec, prompt.role, permit.purpose)
        version = await self._versions.of(attempt, permit, prompt.spec, prompt.role, prompt.patience)
        return replace(prompt, version=version, temperature=sampled.temperature, fields=sampled.fields)

    async def plan_prompt(self, attempt: Attempt, ask: Ask, role: str | None, agent: str | None) -> Plan:
        """Decide for a request that only asks about its prompt, which any replica of the base model can tell.

        Raises like `plan`, but that no version is waited for.
        """
        # Nothing is counted afterwards, which would check the fence again.
        self._permits.drop(attempt)
        plan, _ = await self._begin(attempt, ask, role, agent)
        return plan

    async def _begin(self, attempt: Attempt, ask: Ask, role: str | None, agent: str | None) -> tuple[Plan, CallPermit]:
        """Return the plan with the base model and the agent's own wishes, and the ledger's permit."""
        roles = await self._runs.get(attempt.run)
        name = roles.role(ask.model, role, agent)
        permit = await self._permits.get(attempt)
        wishes = wished(ask)
        plan = Plan(
            roles.spec,
            name,
            0,
            wishes.temperature,
            wishes.fields,
            ask.endpoint,
            ask.logprobs,
            attempt.episode,
            Patience(self._replica_wait_s, f"role `{name}` of run `{attempt.run}`"),
        )
        return plan, permit
