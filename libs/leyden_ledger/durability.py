"""Does this Redis keep what it is told? The ledger promises that an accepted episode ends; a Redis that may drop keys,
or forgets all of them with its process, cannot keep that promise.
"""

from redis.exceptions import ResponseError

from leyden_ledger.ledger import Ledger

_ASKED = ("appendonly", "maxmemory", "maxmemory-policy")


async def dangers(ledger: Ledger) -> list[str]:
    """Return what is wrong with the server's settings, each with what to do. Raises redis.RedisError.

    Managed servers often hide their settings; then there is nothing to say, and the list is empty.
    """
    try:
        found = await ledger.redis.config_get(*_ASKED)
    except ResponseError:
        return []
    return _dangers({name: str(value) for name, value in found.items()})


def _dangers(config: dict[str, str]) -> list[str]:
    wrong = []
    if config.get("appendonly", "yes") != "yes":
        wrong.append(
            "Redis keeps no log (`appendonly no`): with its process the ledger is lost. Set `appendonly yes` and "
            "`appendfsync everysec`"
        )
    policy = config.get("maxmemory-policy", "noeviction")
    if policy != "noeviction" and config.get("maxmemory", "0") != "0":
        wrong.append(
            f"Redis throws keys away when it is full (`maxmemory-policy {policy}`). Set `maxmemory-policy noeviction`"
        )
    return wrong
