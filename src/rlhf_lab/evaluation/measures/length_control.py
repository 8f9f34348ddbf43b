"""Win-rate at equal length, after length-controlled AlpacaEval (arXiv:2404.04475).

The paper's regression has a term for the model, one for the length and one for the prompt. A row is
one model, and prompts are not known from other models, so the first two are left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Keeps the slope finite where length alone tells wins from losses.
RIDGE = 0.01
MAX_STEPS = 100
MAX_HALVINGS = 30
ROUNDING = 1e-12


def length_controlled(
    points: Sequence[float], differences: Sequence[float], ridge: float = RIDGE
) -> float:
    """The win-rate that a logistic regression expects where sample and reference are equally long.

    points: 1 for a win, 0.5 for a tie, 0 for a loss. differences: length of the sample less that of
    the reference. The regression is on tanh(difference / standard deviation of the differences);
    half the ridge times the squared slope is added to the summed loss. Where all prompts ended
    alike, or all differences are the same, it is the plain win-rate.
    """
    won_P = np.array(points, dtype=np.float64)
    difference_P = np.array(differences, dtype=np.float64)
    spread = difference_P.std()
    if spread == 0 or won_P.min() == won_P.max():
        return float(won_P.mean())
    intercept, _ = regression(won_P, np.tanh(difference_P / spread), ridge)
    return float(sigmoid(np.array(intercept)))


def sigmoid(logit: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x), where neither end overflows."""
    return 0.5 * (1 + np.tanh(0.5 * logit))


def regression(won_P: np.ndarray, length_P: np.ndarray, ridge: float) -> tuple[float, float]:
    """Intercept and slope of the logistic regression, by Newton's method with halved steps."""
    design_P2 = np.stack([np.ones_like(length_P), length_P], axis=1)
    penalty_2 = np.array([0.0, ridge])

    def loss(coefficient_2: np.ndarray) -> float:
        logit_P = design_P2 @ coefficient_2
        told_P = np.logaddexp(0.0, logit_P) - won_P * logit_P
        return float(told_P.sum() + 0.5 * (penalty_2 * coefficient_2**2).sum())

    coefficient_2 = np.zeros(2)
    for _ in range(MAX_STEPS):
        expected_P = sigmoid(design_P2 @ coefficient_2)
        gradient_2 = design_P2.T @ (expected_P - won_P) + penalty_2 * coefficient_2
        if np.abs(gradient_2).max() < 1e-9 * len(won_P):
            return float(coefficient_2[0]), float(coefficient_2[1])
        curvature_P1 = (expected_P * (1 - expected_P))[:, None]
        hessian_22 = design_P2.T @ (curvature_P1 * design_P2) + np.diag(penalty_2)
        step_2 = np.linalg.solve(hessian_22, gradient_2)
        for _ in range(MAX_HALVINGS):
            # Near the optimum the loss changes by less than it is rounded.
            if loss(coefficient_2 - step_2) <= loss(coefficient_2) * (1 + ROUNDING):
                break
            step_2 = step_2 / 2
        coefficient_2 = coefficient_2 - step_2
    raise ArithmeticError(f"the length regression of {len(won_P)} prompts did not converge")
