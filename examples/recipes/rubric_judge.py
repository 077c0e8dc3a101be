"""A judge with a rubric: each criterion is a column with a separate weight.

Prints:
    ('rubric/correct', 'rubric/clear') [7.0, 5.0]
    [19.0]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from fake_judge import serve

from guerdon import Dispatcher, rubric

criteria = rubric(
    {"correct": "The answer is right.", "clear": "A child understands it."},
    weights={"correct": 2, "clear": 1},
    base_url=f"{serve()}/v1",
    model="small",
)

with Dispatcher([criteria]) as dispatcher:
    result = dispatcher.score(prompts=["Why is the sky blue?"], completions=["Rayleigh scattering."])
print(result.functions, result.rewards.ravel().tolist())
print(result.total.ravel().tolist())
