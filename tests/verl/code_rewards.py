"""A code reward as users of verl have it; not in `rewards`, as making one tries its fences."""

from __future__ import annotations

import guerdon

dispatcher = guerdon.Dispatcher(
    [guerdon.code_reward(cases="ground_truth", extract="whole", score="share", timeout=5)], max_failure_rate=0.5
)
