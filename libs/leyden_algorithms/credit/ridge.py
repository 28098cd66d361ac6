"""A linear critic in closed form: ridge regression of returns on states, in dual variables (Saunders et al., 1998).

Fitting a linear value function to whole returns is least-squares temporal difference learning with λ = 1 (Boyan,
Machine Learning 49, 2002): no step size, and all that the data tells after one look at it. A head trained by gradient
steps needs many more calls than a step of an agent has, before it is better than no head at all.
"""

import torch
from torch import Tensor

_NOISE = 1e-3
"""Of the states' size: a feature that varies less than this is rounding, and must not be scaled up to a signal."""


def fit_values(states_NH: Tensor, returns_N: Tensor, ridge: float = 1.0) -> tuple[Tensor, Tensor]:
    """Find the linear function of states that is nearest to the returns, with small weights on standardised features.

    The mean return is not held back: with states that are all alike the function is that mean.

    Args:
        states_NH: what each call was judged by, N at least 1.
        returns_N: what each turned out to be worth.
        ridge: the larger, the smaller the weights; in units in which a state's own features have the length 1.

    Returns:
        Weights [H] and the constant, of shape []: float64.
    """
    states_NH, returns_N = states_NH.double(), returns_N.double()
    mean_H, offset = states_NH.mean(0), returns_N.mean()
    centred_NH = states_NH - mean_H
    floor = _NOISE * states_NH.square().mean().sqrt().clamp(min=torch.finfo(torch.float32).tiny)
    scale_H = (centred_NH.square().mean(0).sqrt() + floor) * states_NH.shape[1] ** 0.5
    features_NH = centred_NH / scale_H
    kernel_NN = features_NH @ features_NH.T
    kernel_NN.diagonal().add_(ridge)
    dual_N1 = torch.cholesky_solve((returns_N - offset)[:, None], torch.linalg.cholesky(kernel_NN))
    weights_H = (features_NH.T @ dual_N1)[:, 0] / scale_H
    return weights_H, offset - weights_H @ mean_H
