"""Evaluations and promotions as objects: written once, read in order, damage is noticed."""

import pytest

from leyden_contracts import Evaluation, Promotion
from leyden_storage import LocalStore, StoreError
from leyden_storage.keys import evaluation_key, promotion_key
from leyden_storage.promotions import stored_evaluations, stored_promotions, write_evaluation, write_promotion


def promotion(number: int, version: int) -> Promotion:
    return Promotion(run="mine", number=number, version=version, cause="person", created=number / 3)


def evaluation(version: int, score: float) -> Evaluation:
    return Evaluation(run="mine", version=version, batch="b", counts={"succeeded": 1}, score=score, created=0)


def test_a_number_is_taken_once_and_all_are_read_in_order(store: LocalStore) -> None:
    assert list(stored_promotions(store, "mine")) == []
    for number in range(1, 12):
        assert write_promotion(store, promotion(number, number))
    assert not write_promotion(store, promotion(11, 5))
    assert list(stored_promotions(store, "mine")) == [promotion(number, number) for number in range(1, 12)]
    assert list(stored_promotions(store, "mine", after=10)) == [promotion(11, 11)]


def test_the_first_result_of_a_version_stays(store: LocalStore) -> None:
    assert write_evaluation(store, evaluation(10, 0.25)) == evaluation(10, 0.25)
    assert write_evaluation(store, evaluation(10, 0.75)) == evaluation(10, 0.25)
    write_evaluation(store, evaluation(2, 0.5))
    assert [one.version for one in stored_evaluations(store, "mine")] == [2, 10]


def test_damage_is_noticed(store: LocalStore) -> None:
    store.put(promotion_key("mine", 1), b"{}")
    store.put(evaluation_key("mine", 1), b"not JSON")
    with pytest.raises(StoreError, match="damaged"):
        list(stored_promotions(store, "mine"))
    with pytest.raises(StoreError, match="damaged"):
        stored_evaluations(store, "mine")
