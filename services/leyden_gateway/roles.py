"""Which role a model name stands for. Agents name models; Leyden thinks in roles."""

from dataclasses import dataclass
from functools import cached_property

from leyden_contracts import RunSpec
from leyden_gateway.errors import ApiError
from leyden_ledger import Ledger


@dataclass(frozen=True)
class Roles:
    """The model names of one run."""

    spec: RunSpec

    @cached_property
    def by_model(self) -> dict[str, str]:
        """Model name -> role. `policy` is the trained role, unless another role has that name."""
        roles = self.spec.roles
        aliases = {model: name for name, role in roles.items() for model in role.models}
        prefixed = {f"policy/{name}": name for name in roles}
        return aliases | {"policy": self.spec.trained_role} | prefixed | {name: name for name in roles}

    def role(self, model: str) -> str:
        """Return the role that `model` stands for. Raises ApiError (404) that lists the names there are."""
        found = self.by_model.get(model)
        if found is None:
            known = ", ".join(f"`{name}`" for name in sorted(self.by_model))
            raise ApiError(
                404,
                "model_not_found",
                f"run `{self.spec.id}` has no model `{model}`; it has {known}. "
                "Add a name that an agent cannot change to `roles.*.models` of the run",
            )
        return found


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
