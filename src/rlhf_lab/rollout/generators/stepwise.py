"""The loop around a decoder: draws a token for all rows, and looks at once which of them ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlhf_lab.rollout.generators.decoders import Decoder
from rlhf_lab.rollout.generators.draw import draw, is_end
from rlhf_lab.rollout.generators.rows import Load, Rows, WrittenTokens

# Finished rows leave the batch when no more than this share of its rows still writes: to copy the
# others costs about as much as a few tokens.
STILL_WRITING = 0.75


@dataclass(frozen=True)
class StepwiseWriter:
    """Writes rows by a decoder. ends: the end tokens."""

    decoder: Decoder
    temperature: float
    ends: Sequence[int]

    def write(self, rows: Rows, load: Load) -> WrittenTokens:
        """Write all rows until they end or the random numbers do."""
        versions = [load(rows.start)]
        device = rows.uniform_BT.device
        room = rows.uniform_BT.shape[1]
        logits_BV = self.decoder.begin(rows.texts, rows.repeats, room)
        uniform_TB = rows.uniform_BT.T.contiguous()
        tokens = torch.full(uniform_TB.shape, self.ends[0], device=device)
        end_E = torch.tensor(self.ends, device=device)
        logps = torch.zeros(uniform_TB.shape, device=device)
        row_B = torch.arange(uniform_TB.shape[1], device=device)
        done_B = torch.zeros_like(row_B, dtype=torch.bool)
        is_greedy_B = rows.is_greedy_B
        for column in range(room):
            token_B, logp_B = draw(
                logits_BV, self.temperature, uniform_TB[column, row_B], is_greedy_B
            )
            tokens[column, row_B], logps[column, row_B] = token_B, logp_B
            done_B = done_B | is_end(token_B, end_E)
            writing = len(done_B) - int(done_B.sum())
            if column + 1 == room or not writing:
                break
            if writing <= STILL_WRITING * len(done_B):
                kept = torch.where(~done_B)[0]
                self.decoder.keep(kept)
                row_B, done_B, token_B = row_B[kept], done_B[kept], token_B[kept]
                is_greedy_B = None if is_greedy_B is None else is_greedy_B[kept]
            versions.append(load(rows.start + column + 1))
            logits_BV = self.decoder.step(token_B)
        end = len(versions)
        return WrittenTokens(tokens[:end].T.cpu(), logps[:end].T.cpu(), versions)
