"""Which role a call is of. Agents name models; Leyden thinks in roles."""

from dataclasses import dataclass
from functools import cached_property

from leyden_contracts import RunSpec
from leyden_gateway.errors import ApiError
from leyden_ledger import Ledger


@dataclass(frozen=True)
class Roles:
    """The roles of one run, by the names they go by."""

    spec: RunSpec

    @cached_property
    def by_model(self) -> dict[str, str]:
        """Model name -> role. `policy` is the trained role, if there is one only and no other role has that name."""
        roles = self.spec.roles
        aliases = {model: name for name, role in roles.items() for model in role.models}
        prefixed = {f"policy/{name}": name for name in roles}
        trained = self.spec.trained_roles
        only = {"policy": trained[0]} if len(trained) == 1 else {}
        return aliases | only | prefixed | {name: name for name in roles}

    @cached_property
    def by_agent(self) -> dict[str, str]:
        """Agent name -> role."""
        return {agent: name for name, role in self.spec.roles.items() for agent in role.agents}

    def role(self, model: str, asked: str | None = None, agent: str | None = None) -> str:
        """Return the role of a call.

        Args:
            model: the model it names.
            asked: the role it asks for by header; goes before all else.
            agent: who makes it; goes before the model.

        Raises:
            ApiError: 404, that lists the names there are.
        """
        if asked is not None:
            if asked not in self.spec.roles:
                raise self._unknown("role", asked, self.spec.roles)
            return asked
        found = self.by_agent.get(agent or "") or self.by_model.get(model)
        if found is None:
            raise self._unknown("model", model, self.by_model)
        return found

    def _unknown(self, kind: str, name: str, known: dict) -> ApiError:
        names = ", ".join(f"`{name}`" for name in sorted(known))
        message = (
            f"run `{self.spec.id}` has no {kind} `{name[:200]}`; it has {names}. "
            "Add a name that an agent cannot change to `roles.*.models` of the run"
        )
        return ApiError(404, f"{kind}_not_found", message)


class RunCache:
    """Run specifications never change, so each is read once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: dict[str, Roles] = {}

    async def get(self, run: str) -> Roles:
        """Return the roles of `run`. Raises RunNotFound."""
        known = self._known.get(run)
        if known is None:
            known = self._known[run] = Roles(await self._ledger.runs.get(run))
        return known
