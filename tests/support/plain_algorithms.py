"""The formulas of the papers, in plain Python floats and loops. Written from the papers, for tests to compare with.

Nothing here imports Leyden or torch, and nothing is fast. Samples are lists of tokens, episodes are lists of calls.
"""

from math import exp, log, sqrt

Samples = list[list[float]]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def deviation(values: list[float]) -> float:
    """Standard deviation with Bessel's correction; 0 for one value."""
    centre = mean(values)
    return sqrt(sum((value - centre) ** 2 for value in values) / (len(values) - 1)) if len(values) > 1 else 0.0


def _peers(i: int, groups: list[int]) -> list[int]:
    return [j for j in range(len(groups)) if groups[j] == groups[i]]


def grpo(rewards: list[float], groups: list[int], scale: bool, epsilon: float) -> list[float]:
    """DeepSeekMath, section 4.1.2; Dr. GRPO, section 3.2."""
    result = []
    for i, reward in enumerate(rewards):
        group = [rewards[j] for j in _peers(i, groups)]
        if min(group) == max(group):
            result.append(0.0)
        else:
            result.append((reward - mean(group)) / ((deviation(group) + epsilon) if scale else 1.0))
    return result


def rloo(rewards: list[float], groups: list[int]) -> list[float]:
    """Back to Basics, section 2.3."""
    result = []
    for i, reward in enumerate(rewards):
        others = [rewards[j] for j in _peers(i, groups) if j != i]
        result.append(reward - mean(others) if others else 0.0)
    return result


def whitened(values: list[float], epsilon: float) -> list[float]:
    return grpo(values, [0] * len(values), True, epsilon)


def reinforce_plus_plus(rewards: list[float], groups: list[int], baseline: bool, epsilon: float) -> list[float]:
    """REINFORCE++, section 3: global normalisation; the baseline variant takes the group's mean away before."""
    if baseline:
        rewards = [reward - mean([rewards[j] for j in _peers(i, groups)]) for i, reward in enumerate(rewards)]
    return whitened(rewards, epsilon)


def gdpo(rewards: list[list[float]], groups: list[int], weights: list[float], epsilon: float) -> list[float]:
    """GDPO, section 3.1: each reward in its group, the sum over the batch."""
    apart = [grpo([row[k] for row in rewards], groups, True, epsilon) for k in range(len(weights))]
    summed = [sum(weights[k] * apart[k][i] for k in range(len(weights))) for i in range(len(rewards))]
    return whitened(summed, epsilon)


def to_go(rewards: list[float], discount: float) -> list[float]:
    return [sum(discount ** (k - i) * rewards[k] for k in range(i, len(rewards))) for i in range(len(rewards))]


def step_rewards(rewards: list[float], groups: list[int], signals: Samples, discount: float, epsilon: float) -> Samples:
    """Return-to-go of each call against its group, where every episode weighs the same."""
    returns = [[rewards[e] + later for later in to_go(signals[e], discount)] for e in range(len(rewards))]
    result = []
    for e, mine in enumerate(returns):
        peers = _peers(e, groups)
        centre = mean([mean(returns[j]) for j in peers])
        spread = sum(mean([(value - centre) ** 2 for value in returns[j]]) for j in peers)
        scale = sqrt(spread / (len(peers) - 1)) + epsilon if len(peers) > 1 else 1.0
        result.append([(value - centre) / scale if len(peers) > 1 else 0.0 for value in mine])
    return result


def gigpo(
    rewards: list[float],
    groups: list[int],
    signals: Samples,
    states: list[list[int]],
    weight: float,
    discount: float,
    scale: bool,
    epsilon: float,
) -> Samples:
    """GiGPO, equations 3 to 8: episode level plus ω times step level."""
    totals = [rewards[e] + sum(signals[e]) for e in range(len(rewards))]
    episode_level = grpo(totals, groups, scale, epsilon)
    per_call = [[*signals[e][:-1], signals[e][-1] + rewards[e]] for e in range(len(rewards))]
    returns = [to_go(one, discount) for one in per_call]
    anchors: dict[tuple[int, int], list[float]] = {}
    for e, visited in enumerate(states):
        for c, state in enumerate(visited):
            anchors.setdefault((groups[e], state), []).append(returns[e][c])
    result = []
    for e, visited in enumerate(states):
        row = []
        for c, state in enumerate(visited):
            peers = anchors[groups[e], state]
            step = returns[e][c] - mean(peers)
            if scale:
                step = step / (deviation(peers) + epsilon) if max(peers) > min(peers) else 0.0
            row.append(episode_level[e] + weight * step)
        result.append(row)
    return result


def gae(rewards: list[float], values: list[float], discount: float, trace: float) -> list[float]:
    """High-dimensional continuous control using GAE, equation 16, for one episode that ends."""
    after = [*values[1:], 0.0]
    deltas = [rewards[i] + discount * after[i] - values[i] for i in range(len(rewards))]
    return [sum((discount * trace) ** (k - i) * deltas[k] for k in range(i, len(deltas))) for i in range(len(deltas))]


def clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def ppo(current: Samples, old: Samples, advantages: Samples, low: float, high: float, dual: float | None) -> Samples:
    """PPO, equation 7; DAPO, equation 8; the dual clip of Ye et al., equation 5."""
    result = []
    for now, before, gain in zip(current, old, advantages, strict=True):
        row = []
        for x, y, a in zip(now, before, gain, strict=True):
            ratio = exp(x - y)
            objective = min(ratio * a, clip(ratio, 1 - low, 1 + high) * a)
            if dual is not None and a < 0:
                objective = max(objective, dual * a)
            row.append(-objective)
        result.append(row)
    return result


def gspo(current: Samples, old: Samples, advantages: Samples, low: float, high: float) -> Samples:
    """GSPO, equations 5 and 7."""
    result = []
    for now, before, gain in zip(current, old, advantages, strict=True):
        ratio = exp(sum(x - y for x, y in zip(now, before, strict=True)) / len(now))
        result.append([-min(ratio * a, clip(ratio, 1 - low, 1 + high) * a) for a in gain])
    return result


def cispo(current: Samples, old: Samples, advantages: Samples, low: float, high: float) -> Samples:
    """MiniMax-M1, equations 4 and 5."""
    return [
        [-clip(exp(x - y), 1 - low, 1 + high) * a * x for x, y, a in zip(now, before, gain, strict=True)]
        for now, before, gain in zip(current, old, advantages, strict=True)
    ]


def token_mean(losses: Samples) -> float:
    return sum(sum(row) for row in losses) / sum(len(row) for row in losses)


def sequence_mean(losses: Samples) -> float:
    return mean([mean(row) for row in losses])


def constant(losses: Samples, length: int) -> float:
    return mean([sum(row) / length for row in losses])


def correction(name: str, old: Samples, sampled: Samples, low: float, high: float) -> Samples:
    """Weights of TIS, MIS, IcePop (Ring-1T, equation of M(k)) and the geometric mask."""
    result = []
    for mine, theirs in zip(old, sampled, strict=True):
        ratios = [exp(x - y) for x, y in zip(mine, theirs, strict=True)]
        product = exp(sum(log(ratio) for ratio in ratios))
        geometric = product ** (1 / len(ratios))
        result.append(
            {
                "tis": [min(ratio, high) for ratio in ratios],
                "tis_sequence": [min(product, high)] * len(ratios),
                "mis": [ratio if ratio <= high else 0.0 for ratio in ratios],
                "mis_sequence": [product if product <= high else 0.0] * len(ratios),
                "icepop": [ratio if low <= ratio <= high else 0.0 for ratio in ratios],
                "geometric": [float(low <= geometric <= high)] * len(ratios),
            }[name]
        )
    return result


def dpo(chosen: float, rejected: float, base_chosen: float, base_rejected: float, beta: float) -> float:
    """DPO, equation 7, for one pair."""
    margin = beta * ((chosen - base_chosen) - (rejected - base_rejected))
    return -log(1 / (1 + exp(-margin)))
