"""`leyden/RUN:best` and `leyden/RUN:latest`: the fruits of a run, for any client, once there are some.

Where a run trains several roles, `leyden/RUN/ROLE:best` says whose.
"""

import re

from leyden_contracts import RunSpec
from leyden_gateway.ask import Ask
from leyden_gateway.errors import ApiError
from leyden_gateway.plan import Plan
from leyden_gateway.replicas import Patience
from leyden_gateway.roles import RunCache
from leyden_gateway.sampling import wished
from leyden_ledger import Ledger, RunNotFound
from leyden_runtime.tokens import ALL_TENANTS, Claims

_ALIAS = re.compile(
    r"leyden/(?P<run>[a-z0-9][a-z0-9-]{0,47})(/(?P<role>[a-z0-9][a-z0-9_]{0,31}))?:(?P<which>best|latest|[0-9]{1,9})"
)


class Aliases:
    """Plans the calls of users, which belong to no episode and are not recorded."""

    def __init__(self, ledger: Ledger, runs: RunCache, replica_wait_s: float) -> None:
        self._ledger = ledger
        self._runs = runs
        self._replica_wait_s = replica_wait_s

    async def plan(self, claims: Claims, ask: Ask, sticky: str) -> Plan:
        """Decide for a call of a user. Raises ApiError: 404 that says what there is."""
        spec, role, version = await self.resolve(claims, ask.model)
        sampled = wished(ask)
        patience = Patience(self._replica_wait_s, f"version {version} of run `{spec.id}`")
        return Plan(
            spec,
            role,
            version,
            sampled.temperature,
            sampled.fields,
            ask.endpoint,
            ask.logprobs,
            sticky,
            patience,
        )

    async def resolve(self, claims: Claims, model: str) -> tuple[RunSpec, str, int]:
        """Return the run, the role and the version that `model` stands for. Raises ApiError (404)."""
        found = _ALIAS.fullmatch(model)
        if found is None:
            message = (
                f"there is no model `{model[:200]}`: name `leyden/RUN:best`, `leyden/RUN:latest` or `leyden/RUN:3`"
            )
            raise ApiError(404, "model_not_found", message)
        run, which = found["run"], found["which"]
        spec = await self._spec(claims, run)
        role = _role(spec, found["role"])
        promoted = await self._ledger.promotions.current(run)
        if which == "latest":
            return spec, role, promoted.latest
        if which == "best":
            if promoted.best is None:
                message = f"run `{run}` has promoted no version yet; `leyden/{run}:latest` is version {promoted.latest}"
                raise ApiError(404, "model_not_found", message)
            return spec, role, promoted.best
        return spec, role, int(which)

    async def names(self, claims: Claims) -> list[str]:
        """Return the models of the token's run; of a tenant's token none, for it could have any number of runs."""
        if claims.run is None:
            return []
        spec = await self._spec(claims, claims.run)
        promoted = await self._ledger.promotions.current(claims.run)
        several = len(spec.trained_roles) > 1
        names = [f"{claims.run}/{role}" for role in spec.trained_roles] if several else [claims.run]
        there = [which for which in ("best", "latest") if which == "latest" or promoted.best]
        return [f"leyden/{name}:{which}" for name in names for which in there]

    async def _spec(self, claims: Claims, run: str) -> RunSpec:
        # Whose run it is stays hidden from others: to them it does not exist.
        missing = ApiError(404, "model_not_found", f"there is no run `{run}` that this token may use")
        if claims.run not in (None, run):
            raise missing
        try:
            spec = (await self._runs.get(run)).spec
        except RunNotFound:
            raise missing from None
        if claims.tenant not in (spec.tenant, ALL_TENANTS):
            raise missing
        return spec


def _role(spec: RunSpec, asked: str | None) -> str:
    """Return the trained role that is meant. Raises ApiError (404)."""
    roles = spec.trained_roles
    if asked in roles or (asked is None and len(roles) == 1):
        return asked or roles[0]
    names = ", ".join(f"`leyden/{spec.id}/{role}:latest`" for role in roles)
    raise ApiError(404, "model_not_found", f"run `{spec.id}` trains {len(roles)} role(s): name one of {names}")
