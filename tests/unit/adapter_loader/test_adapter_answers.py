"""How a replica's list of likely tokens is read."""

import pytest

from leyden_adapter_loader.replica import ReplicaRefused, _answer


def reply(listed: object) -> dict:
    return {"choices": [{"logprobs": {"top_logprobs": [listed]}}]}


def test_a_listed_token() -> None:
    assert _answer(reply({"token_id:3": -0.5, "token_id:4": -1.5}), 4) == -1.5


def test_the_sampled_token_is_not_the_border_of_the_list() -> None:
    twenty = {f"token_id:{n}": -0.1 * n for n in range(20)}
    assert _answer(reply({**twenty, "token_id:99": -12.0}), 50) == pytest.approx(-1.9)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"token_id:3": -1.0},
        {"token_id:3": "x", "token_id:4": -1},
        None,
        [1, 2],
        {"token_id:3": float("nan"), "token_id:4": -1},
    ],
)
def test_what_is_no_list(broken: object) -> None:
    with pytest.raises(ReplicaRefused):
        _answer(reply(broken), 3)
