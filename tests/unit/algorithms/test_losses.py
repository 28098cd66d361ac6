"""Losses of tokens: by hand, against plain Python, by finite differences, and at the edges of numbers."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from leyden_algorithms import (
    KL_ESTIMATORS,
    KL_LOSSES,
    TOKEN_LOSSES,
    Tokens,
    entropy_bonus,
    kl_loss,
    token_entropies,
)
from support import plain_algorithms as plain
from support.policies import make_tokens, rows

PLAIN = {
    "ppo_clip": partial(plain.ppo, low=0.2, high=0.2, dual=None),
    "dapo": partial(plain.ppo, low=0.2, high=0.28, dual=None),
    "gspo": partial(plain.gspo, low=3e-4, high=4e-4),
    "gspo_token": partial(plain.gspo, low=3e-4, high=4e-4),
    "cispo": partial(plain.cispo, low=1.0, high=4.0),
}


def one(ratio: float, advantage: float) -> Tokens:
    return Tokens(
        current_T=torch.tensor([math.log(ratio)], requires_grad=True),
        old_T=torch.zeros(1),
        sampled_T=torch.full((1,), -9.0),
        advantages_T=torch.tensor([advantage]),
        lengths_S=torch.tensor([1]),
    )


@pytest.mark.parametrize("name", TOKEN_LOSSES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("moved", [0.4, 2.0])
def test_each_is_what_its_paper_says(name: str, seed: int, moved: float):
    tokens = make_tokens(seed, moved=moved)

    expected = PLAIN[name](rows(tokens.current_T), rows(tokens.old_T), rows(tokens.advantages_T))

    assert rows(TOKEN_LOSSES[name](tokens)) == [pytest.approx(row, abs=1e-12) for row in expected]


@pytest.mark.parametrize("name", ["ppo_clip", "dapo", "gspo", "gspo_token", "cispo"])
def test_bounds_are_those_that_are_given(name: str):
    tokens = make_tokens()
    bounds = {"low": 0.05, "high": 0.5}
    options = {"dual": None} if name in ("ppo_clip", "dapo") else {}

    expected = PLAIN[name].func(
        rows(tokens.current_T), rows(tokens.old_T), rows(tokens.advantages_T), **bounds, **options
    )

    found = TOKEN_LOSSES[name](tokens, clip_low=0.05, clip_high=0.5)
    assert rows(found) == [pytest.approx(row, abs=1e-12) for row in expected]


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),
        (2.0, 2.0, -2.56, 0.0),  # clipped at 1 + 0.28
        (0.5, 2.0, -1.0, -1.0),  # the clip never hides that a good token has become rarer
        (0.5, -2.0, 1.6, 0.0),  # clipped at 1 - 0.2
        (2.0, -2.0, 4.0, 4.0),  # nor that a bad one has become likelier
        (5.0, -2.0, 6.0, 0.0),  # up to the dual clip at 3
    ],
)
def test_dapo_of_one_token_by_hand(ratio: float, advantage: float, expected: float, slope: float):
    tokens = one(ratio, advantage)

    loss = TOKEN_LOSSES["dapo"](tokens, dual_clip=3.0)
    loss.sum().backward()

    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert tokens.current_T.grad.item() == pytest.approx(slope, rel=1e-6)


def test_the_dual_clip_is_what_its_paper_says():
    tokens = make_tokens(moved=2.0)

    expected = plain.ppo(rows(tokens.current_T), rows(tokens.old_T), rows(tokens.advantages_T), 0.2, 0.2, 1.7)

    found = TOKEN_LOSSES["ppo_clip"](tokens, dual_clip=1.7)
    assert rows(found) == [pytest.approx(row, abs=1e-12) for row in expected]
    assert not torch.equal(found, TOKEN_LOSSES["ppo_clip"](tokens))


def test_a_dual_clip_within_the_trust_region_is_refused():
    with pytest.raises(ValueError, match="above 1"):
        TOKEN_LOSSES["ppo_clip"](one(1.0, 1.0), dual_clip=0.9)


def test_gspo_by_hand():
    # Ratios 2 and 1/8: their geometric mean is 1/2; clipped at 0.9 where the advantage is negative.
    tokens = Tokens(
        current_T=torch.log(torch.tensor([2.0, 0.125, 2.0, 0.125])),
        old_T=torch.zeros(4),
        sampled_T=torch.zeros(4),
        advantages_T=torch.tensor([1.0, 1.0, -1.0, -1.0]),
        lengths_S=torch.tensor([2, 2]),
    )

    found = TOKEN_LOSSES["gspo"](tokens, clip_low=0.1, clip_high=0.1)

    assert found.tolist() == pytest.approx([-0.5, -0.5, 0.9, 0.9])


def test_gspo_and_its_token_variant_agree_where_advantages_do():
    tokens = make_tokens(moved=0.01)
    gradients = []
    for name in ("gspo", "gspo_token"):
        current = tokens.current_T.clone().requires_grad_()
        TOKEN_LOSSES[name](replace(tokens, current_T=current), clip_low=0.5, clip_high=0.5).sum().backward()
        gradients.append(current.grad)

    assert gradients[0].tolist() == pytest.approx(gradients[1].tolist(), abs=1e-12)


def test_the_token_variant_of_gspo_moves_each_token_by_its_own_advantage():
    tokens = replace(make_tokens(lengths=(4,), moved=0.001), advantages_T=torch.tensor([1.0, 0.0, -1.0, 2.0]).double())
    current = tokens.current_T.clone().requires_grad_()

    TOKEN_LOSSES["gspo_token"](replace(tokens, current_T=current), clip_low=0.5, clip_high=0.5).sum().backward()

    assert current.grad.tolist() == pytest.approx([-1.0, 0.0, 1.0, -2.0], abs=0.01)


def test_cispo_keeps_the_gradient_of_every_token_and_bounds_its_weight():
    current = torch.log(torch.tensor([9.0, 0.1, 1.5])).requires_grad_()
    tokens = Tokens(
        current_T=current,
        old_T=torch.zeros(3),
        sampled_T=torch.zeros(3),
        advantages_T=torch.tensor([1.0, -1.0, 2.0]),
        lengths_S=torch.tensor([3]),
    )

    TOKEN_LOSSES["cispo"](tokens, clip_low=1.0, clip_high=1.0).sum().backward()

    assert current.grad.tolist() == pytest.approx([-2.0, 0.1, -3.0])


@pytest.mark.parametrize("name", TOKEN_LOSSES)
@pytest.mark.parametrize("seed", range(2))
def test_gradients_by_finite_differences(name: str, seed: int):
    tokens = make_tokens(seed)
    # Of what is held constant, finite differences know nothing: they see the loss as if it were not.
    frozen = {"cispo": "weight", "gspo_token": "ratio"}.get(name)
    current = tokens.current_T.clone().requires_grad_()

    if frozen is None:
        assert torch.autograd.gradcheck(lambda x: TOKEN_LOSSES[name](replace(tokens, current_T=x)), current)
        return
    TOKEN_LOSSES[name](replace(tokens, current_T=current)).sum().backward()
    log_ratio = tokens.current_T - tokens.old_T
    advantages = tokens.advantages_T
    if name == "cispo":
        expected = -log_ratio.exp().clamp(0, 5) * advantages
    else:
        ratio = torch.cat([part.mean().exp().expand(len(part)) for part in log_ratio.split(tokens.lengths_S.tolist())])
        idle = (ratio > 1 + 4e-4) & (advantages > 0) | (ratio < 1 - 3e-4) & (advantages < 0)
        expected = (-ratio * advantages).masked_fill(idle, 0)
    assert current.grad.tolist() == pytest.approx(expected.tolist(), abs=1e-12)


@pytest.mark.parametrize("name", TOKEN_LOSSES)
def test_only_the_current_policy_gets_a_gradient(name: str):
    tokens = make_tokens()
    parts = {field: getattr(tokens, field).clone().requires_grad_() for field in ("current_T", "old_T", "sampled_T")}

    TOKEN_LOSSES[name](replace(tokens, **parts)).sum().backward()

    assert parts["current_T"].grad is not None
    assert parts["old_T"].grad is parts["sampled_T"].grad is None


@pytest.mark.parametrize("name", TOKEN_LOSSES)
def test_a_loss_clips_against_the_old_policy_not_the_one_that_sampled(name: str):
    tokens = make_tokens()

    moved = replace(tokens, sampled_T=tokens.sampled_T - 1)

    assert torch.equal(TOKEN_LOSSES[name](tokens), TOKEN_LOSSES[name](moved))
    assert not torch.equal(TOKEN_LOSSES[name](tokens), TOKEN_LOSSES[name](replace(tokens, old_T=tokens.old_T - 1)))


@pytest.mark.parametrize("name", TOKEN_LOSSES)
@pytest.mark.parametrize("gap", [500.0, -500.0, 1e30])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_wild_ratio_stays_finite(name: str, gap: float, advantage: float):
    current = torch.tensor([-gap, -1.0], requires_grad=True)
    tokens = Tokens(
        current_T=current,
        old_T=torch.zeros(2),
        sampled_T=torch.zeros(2),
        advantages_T=torch.full((2,), advantage),
        lengths_S=torch.tensor([2]),
    )

    loss = TOKEN_LOSSES[name](tokens)
    loss.sum().backward()

    assert torch.isfinite(loss).all()
    assert torch.isfinite(current.grad).all()


@pytest.mark.parametrize("name", TOKEN_LOSSES)
def test_half_precision_is_computed_in_float32(name: str):
    tokens = make_tokens(dtype=torch.bfloat16)
    exact = Tokens(
        **{field: getattr(tokens, field).float() for field in Tokens.__slots__[:4]}, lengths_S=tokens.lengths_S
    )

    found = TOKEN_LOSSES[name](tokens)

    assert found.dtype == torch.float32
    assert torch.equal(found, TOKEN_LOSSES[name](exact))


def test_tokens_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="same tokens"):
        replace(make_tokens(), lengths_S=torch.tensor([3]))


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="clip"):
        TOKEN_LOSSES["ppo_clip"](make_tokens(), clip=0.2)


def test_kl_estimators_by_hand():
    # Base over current: 2 and 1/2.
    current, base = torch.zeros(2).double(), torch.log(torch.tensor([2.0, 0.5]).double())
    log2 = math.log(2)

    assert KL_ESTIMATORS["k1"](current, base).tolist() == pytest.approx([-log2, log2])
    assert KL_ESTIMATORS["k2"](current, base).tolist() == pytest.approx([log2**2 / 2] * 2)
    assert KL_ESTIMATORS["k3"](current, base).tolist() == pytest.approx([1 - log2, log2 - 0.5])


def kl(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (left.softmax(0) * (left.log_softmax(0) - right.log_softmax(0))).sum()


@pytest.mark.parametrize("name", ["k1", "k3"])
def test_unbiased_estimators_average_to_the_divergence(name: str):
    torch.manual_seed(0)
    current, base = torch.randn(2, 5, dtype=torch.float64)

    # Every token at once, as often as it would be sampled.
    found = (current.softmax(0) * KL_ESTIMATORS[name](current.log_softmax(0), base.log_softmax(0))).sum()

    assert found.item() == pytest.approx(kl(current, base).item())


def test_what_each_estimator_teaches_as_a_loss():
    torch.manual_seed(0)
    current, base = torch.randn(2, 5, dtype=torch.float64)
    current.requires_grad_()
    found = {}
    for name, estimate in KL_ESTIMATORS.items():
        sampled = current.detach().softmax(0)
        loss = (sampled * estimate(current.log_softmax(0), base.log_softmax(0))).sum()
        found[name] = torch.autograd.grad(loss, current)[0].tolist()
    reverse, forward = (
        torch.autograd.grad(kl(*pair), current)[0].tolist() for pair in ((current, base), (base, current))
    )

    assert found["k1"] == pytest.approx([0] * 5, abs=1e-12)
    assert found["k2"] == pytest.approx(reverse)
    assert found["k3"] == pytest.approx(forward)
    assert {"k2", "k3"} == KL_LOSSES


def test_the_unbiased_penalty_teaches_the_divergence_itself():
    torch.manual_seed(0)
    logits, base, old = torch.randn(3, 5, dtype=torch.float64)
    logits.requires_grad_()
    tokens = Tokens(
        current_T=logits.log_softmax(0),
        old_T=old.log_softmax(0),
        sampled_T=old,
        advantages_T=torch.zeros(5),
        lengths_S=torch.tensor([5]),
    )

    # Sampled by the old policy, every token as often as it would be.
    loss = (old.softmax(0) * kl_loss(tokens, base.log_softmax(0), unbiased=True)).sum()

    assert loss.item() == pytest.approx(kl(logits, base).item())
    found, expected = (torch.autograd.grad(one, logits)[0].tolist() for one in (loss, kl(logits, base)))
    assert found == pytest.approx(expected)


def test_an_estimator_that_teaches_nothing_is_refused_as_a_loss():
    with pytest.raises(ValueError, match="use k2 or k3"):
        kl_loss(make_tokens(), make_tokens().old_T, estimator="k1")


@pytest.mark.parametrize("estimator", sorted(KL_LOSSES))
@pytest.mark.parametrize("unbiased", [True, False])
def test_gradients_of_kl_losses(estimator: str, unbiased: bool):
    tokens = make_tokens()

    def loss(current: torch.Tensor) -> torch.Tensor:
        return kl_loss(replace(tokens, current_T=current), tokens.sampled_T, estimator=estimator, unbiased=unbiased)

    assert torch.autograd.gradcheck(loss, tokens.current_T.clone().requires_grad_())


@pytest.mark.parametrize("name", KL_ESTIMATORS)
def test_gradients_of_kl_estimators(name: str):
    tokens = make_tokens()

    assert torch.autograd.gradcheck(lambda x: KL_ESTIMATORS[name](x, tokens.old_T), tokens.current_T.requires_grad_())


@pytest.mark.parametrize("name", KL_ESTIMATORS)
def test_kl_estimates_stay_finite(name: str):
    far = torch.tensor([-1e30, -500.0, 0.0])

    assert torch.isfinite(KL_ESTIMATORS[name](far, -1.0 + torch.zeros(3))).all()
    assert torch.isfinite(KL_ESTIMATORS[name](-1.0 + torch.zeros(3), far)).all()


def test_entropy_by_hand():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]]))

    assert token_entropies(logits).tolist() == pytest.approx([1.5 * math.log(2), math.log(3), 0], abs=1e-6)
    assert entropy_bonus(token_entropies(logits), 0.1)[1].item() == pytest.approx(-0.1 * math.log(3))


def test_gradients_of_entropy_are_finite_and_right():
    torch.manual_seed(0)
    logits = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    impossible = torch.tensor([[0.0, 1.0, -math.inf]], requires_grad=True)

    token_entropies(impossible).sum().backward()

    assert torch.autograd.gradcheck(token_entropies, logits)
    assert torch.isfinite(impossible.grad).all()
    assert token_entropies(torch.zeros(2, 3, dtype=torch.bfloat16)).dtype == torch.float32
