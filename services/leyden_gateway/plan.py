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
from leyden_gateway.sampling import Sampled, imposed, wished
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
        spec, name, permit = await self._begin(attempt, ask, role, agent)
        patience = self._patience(attempt, name)
        version = await self._versions.of(attempt, permit, spec, name, patience)
        return _plan(spec, name, version, imposed(ask, spec, name, permit.purpose), ask, attempt, patience)

    async def plan_prompt(self, attempt: Attempt, ask: Ask, role: str | None, agent: str | None) -> Plan:
        """Decide for a request that only asks about its prompt, which any replica of the base model can tell.

        Raises like `plan`, but that no version is waited for.
        """
        # Nothing is counted afterwards, which would check the fence again.
        self._permits.drop(attempt)
        spec, name, _ = await self._begin(attempt, ask, role, agent)
        return _plan(spec, name, 0, wished(ask), ask, attempt, self._patience(attempt, name))

    async def _begin(
        self, attempt: Attempt, ask: Ask, role: str | None, agent: str | None
    ) -> tuple[RunSpec, str, CallPermit]:
        """Return the run, the role, and the ledger's permit."""
        roles = await self._runs.get(attempt.run)
        name = roles.role(ask.model, role, agent)
        return roles.spec, name, await self._permits.get(attempt)

    def _patience(self, attempt: Attempt, role: str) -> Patience:
        return Patience(self._replica_wait_s, f"role `{role}` of run `{attempt.run}`")


def _plan(
    spec: RunSpec, role: str, version: int, sampled: Sampled, ask: Ask, attempt: Attempt, patience: Patience
) -> Plan:
    shown, sticky = ask.logprobs, attempt.episode
    return Plan(spec, role, version, sampled.temperature, sampled.fields, ask.endpoint, shown, sticky, patience)
