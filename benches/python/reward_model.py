"""A small reward model: an embedding, two layers and a head, in torch on the CPU."""

from __future__ import annotations

import torch

from guerdon import StatefulReward

WIDTH = 256
LENGTH = 128


class RewardModel(StatefulReward):
    """Scores texts by a network with fixed weights; one call on many is one pass."""

    def setup(self) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True, dropout=0.0)
        self.model = torch.nn.ModuleList([torch.nn.Embedding(256, WIDTH), layer, torch.nn.Linear(WIDTH, 1)]).eval()

    def score(self, texts: list[str]) -> list[float]:
        tokens = torch.tensor([list(text.encode()[:LENGTH].ljust(LENGTH)) for text in texts])
        with torch.no_grad():
            embed, layer, head = self.model
            scores: list[float] = head(layer(embed(tokens)).mean(1)).squeeze(1).tolist()
        return scores


class OneByOne(RewardModel):
    """The same, called for each sample."""

    def score(self, text: str) -> float:  # type: ignore[override]
        return super().score([text])[0]
