"""The adapters that are loaded, by name. Lives on the asyncio loop; files are read on a thread."""

import asyncio
from pathlib import Path

from leyden_engine.adapter_files import AdapterMissing, AdapterUnusable, read_adapter
from leyden_engine.errors import EngineError
from leyden_engine.lora import Adapter
from leyden_engine.network import Network


class Adapters:
    """Loads, finds and unloads adapters. A name means the same weights for as long as it is loaded."""

    def __init__(self, network: Network, served_name: str, limit: int) -> None:
        self._network = network
        self._served_name = served_name
        self._limit = limit
        self._loaded: dict[str, Adapter] = {}
        self._loading: set[str] = set()

    def __len__(self) -> int:
        return len(self._loaded)

    def all(self) -> list[Adapter]:
        """Return the loaded adapters, oldest first."""
        return list(self._loaded.values())

    def find(self, model: str) -> Adapter | None:
        """Return the adapter of that name, None for the base model. Raises EngineError (404)."""
        if model == self._served_name:
            return None
        if model not in self._loaded:
            raise EngineError(404, f"The model `{model}` does not exist.", "model")
        return self._loaded[model]

    async def load(self, name: str, path: str) -> None:
        """Load the adapter in folder `path`.

        Raises:
            EngineError: 400 the name is taken or too many are loaded, 404 no such folder, 500 it cannot be used.
        """
        if name == self._served_name:
            raise EngineError(400, f"The lora adapter '{name}' conflicts with the base model's name.", "lora_name")
        if name in self._loaded or name in self._loading:
            raise EngineError(400, f"The lora adapter '{name}' has already been loaded.", "lora_name")
        if len(self._loaded) + len(self._loading) >= self._limit:
            raise EngineError(
                400, f"{self._limit} adapters are loaded: unload one, or raise LEYDEN_ENGINE_MAX_ADAPTERS"
            )
        self._loading.add(name)
        try:
            net = self._network
            self._loaded[name] = await asyncio.to_thread(
                read_adapter, Path(path), name, net.layers, net.dtype, net.device
            )
        except AdapterMissing as error:
            raise EngineError(404, f"No adapter found for '{name}': {error}", "lora_path") from error
        except AdapterUnusable as error:
            raise EngineError(500, f"The adapter '{name}' cannot be used: {error}", "lora_path") from error
        finally:
            self._loading.discard(name)

    def unload(self, name: str) -> None:
        """Forget the adapter. Jobs that run on it end on its weights. Raises EngineError (404)."""
        if self._loaded.pop(name, None) is None:
            raise EngineError(404, f"The lora adapter '{name}' cannot be found.", "lora_name")
