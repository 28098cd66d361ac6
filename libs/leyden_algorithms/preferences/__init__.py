"""Supervised and preference objectives: for a start from a warm adapter."""

from leyden_algorithms.preferences.dpo import Pairs, dpo_loss, dpo_metrics, sequence_logprobs
from leyden_algorithms.preferences.pairs import PAIRINGS
from leyden_algorithms.preferences.sft import sft_loss

__all__ = ["PAIRINGS", "Pairs", "dpo_loss", "dpo_metrics", "sequence_logprobs", "sft_loss"]
