"""One connection to the ledger."""

from leyden_ledger.assembly import Assembly
from leyden_ledger.calls import Calls
from leyden_ledger.episodes import Episodes
from leyden_ledger.evaluations import Evaluations
from leyden_ledger.events import Events
from leyden_ledger.keeping import Keeping
from leyden_ledger.promotions import Promotions
from leyden_ledger.replicas import Replicas
from leyden_ledger.runs import Runs
from leyden_ledger.store import Scripts
from leyden_ledger.training import Training
from leyden_ledger.uploads import Uploads


class Ledger:
    """The ledger's facets. All methods are coroutines; they raise LedgerError, or redis.RedisError if Redis is away."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        self.redis = scripts.redis
        self.runs = Runs(scripts)
        self.episodes = Episodes(scripts)
        self.calls = Calls(scripts)
        self.assembly = Assembly(scripts)
        self.training = Training(scripts)
        self.replicas = Replicas(scripts)
        self.evaluations = Evaluations(scripts)
        self.keeping = Keeping(scripts)
        self.promotions = Promotions(scripts)
        self.events = Events(scripts)
        self.uploads = Uploads(scripts)

    @classmethod
    def connect(cls, redis_url: str) -> "Ledger":
        """Open the ledger in the Redis at `redis_url`; connects at the first call."""
        return cls(Scripts.connect(redis_url))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._scripts.aclose()
