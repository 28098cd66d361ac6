"""Evaluations and promotions as objects: the record of which version is to be used, and why."""

from collections.abc import Iterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from leyden_contracts import Evaluation, Promotion
from leyden_storage.base import ObjectNotFound, ObjectStore, StoreError
from leyden_storage.keys import evaluation_key, evaluations_prefix, promotion_key

_Kind = TypeVar("_Kind", bound=BaseModel)


def write_evaluation(store: ObjectStore, evaluation: Evaluation) -> Evaluation:
    """Store a result once; return the one that is stored, which may be somebody else's. Raises StoreError."""
    key = evaluation_key(evaluation.run, evaluation.version)
    if store.create(key, _text(evaluation)):
        return evaluation
    return _read(store, key, Evaluation)


def stored_evaluations(store: ObjectStore, run: str) -> list[Evaluation]:
    """Return all results of a run, by version. Raises StoreError."""
    return [_read(store, key, Evaluation) for key in store.list(evaluations_prefix(run))]


def write_promotion(store: ObjectStore, promotion: Promotion) -> bool:
    """Store a promotion; False if its number is taken. Raises StoreError."""
    return store.create(promotion_key(promotion.run, promotion.number), _text(promotion))


def stored_promotions(store: ObjectStore, run: str, after: int = 0) -> Iterator[Promotion]:
    """Yield the promotions after number `after`, in order. Raises StoreError."""
    number = after + 1
    while True:
        try:
            yield _read(store, promotion_key(run, number), Promotion)
        except ObjectNotFound:
            return
        number += 1


def _text(message: BaseModel) -> bytes:
    return message.model_dump_json(indent=2).encode()


def _read(store: ObjectStore, key: str, kind: type[_Kind]) -> _Kind:
    try:
        return kind.model_validate_json(store.get(key))
    except ValidationError as error:
        raise StoreError(f"{key} is damaged: {error}") from error
