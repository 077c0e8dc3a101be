"""A reward model: loaded once per worker, called with up to 32 samples.

Prints:
    [0.25, 0.5, 1.0]
"""

from guerdon import Dispatcher, StatefulReward, reward


class Model(StatefulReward):
    def setup(self) -> None:
        self.forward = lambda texts: [len(text) / 8 for text in texts]  # load your model here

    def score(self, completions: list[str]) -> list[float]:
        return self.forward(completions)


with Dispatcher([reward(Model(), batch_size=32, timeout=60)], workers=1) as dispatcher:
    print(dispatcher.score(completions=["ab", "abcd", "abcdefgh"]).rewards.ravel().tolist())
