"""``python -m benches.training``: several runs of each mode by turns, each with another seed, and a
table of them.

A mode could save (off - bound), and saves the share (off - mode) / (off - bound) of that. Steps at
both ends of a run, where a mode has yet to get ahead or generates nothing more, are left out.

The learning of the modes is measured in separate runs with many steps and short delays, which give
the final reward.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

from benches.training.bounds import bound

MODES = ("off", "mini_batch", "one_step", "both")
PUBLISHED = {"off": "", "mini_batch": "-12.3 %", "one_step": "-25.2 %", "both": "-30.9 %"}
PIECES = 4
LEARNING_SCALE = 2000.0
"""Scale of the runs for the final reward: the order of rewards stays random, and hardly any waiting
is left."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each mode, each with its own seed (default 5)")
    parser.add_argument("--steps", type=int, default=8, help="optimizer steps of a run (default 8)")
    parser.add_argument("--learning-steps", type=int, default=80, help="of a run that shows the reward (default 80)")
    parser.add_argument(
        "--scale", type=float, default=12.5, help="the recipe's seconds are divided by it (default 12.5)"
    )
    parser.add_argument(
        "--generation", type=float, default=40.0, help="the recipe's seconds of generation (default 40)"
    )
    parser.add_argument("--training", type=float, default=80.0, help="and of training on a batch (default 80)")
    parser.add_argument("--modes", default=",".join(MODES), help="off is needed for the shares")
    parser.add_argument("--out", help="a file for what every run measured, as JSON lines")
    options = parser.parse_args()
    modes = options.modes.split(",")
    runs: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
    for seed in range(options.runs):
        # by turns, each round in another order: other load meets all of them
        for turn in range(len(modes)):
            mode = modes[(turn + seed) % len(modes)]
            measured = _run(mode, seed, options, steps=options.steps, scale=options.scale)
            measured["learned"] = _run(mode, seed, options, steps=options.learning_steps, scale=LEARNING_SCALE)[
                "rewards"
            ]
            runs[mode].append(measured)
            if options.out:
                with open(options.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps(measured) + "\n")
            line = f"seed {seed}, {mode}: {_step(measured):.3f} s a step, final reward {_final(measured):.3f}"
            print(line, file=sys.stderr, flush=True)
    print("\n".join(table(runs)))


def _run(mode: str, seed: int, options: argparse.Namespace, *, steps: int, scale: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benches.training.run", "--mode", mode, "--seed", str(seed)]
    command += ["--steps", str(steps), "--scale", str(scale)]
    for name in ("generation", "training"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}.")
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def table(runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The table, in Markdown."""
    off = runs.get("off", [])
    lines = [
        "| | step, s: median (least to most) | saved | published | bound, s | share of what the mode could save | final reward |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for mode, of in runs.items():
        took = statistics.median(map(_step, of))
        row = [mode, f"{took:.3f} ({min(map(_step, of)):.3f} to {max(map(_step, of)):.3f})"]
        without = statistics.median(map(_step, off)) if off else took
        row += ["" if mode == "off" else f"{(took / without - 1) * 100:+.1f} %", PUBLISHED.get(mode, "")]
        if off and mode != "off":
            best = statistics.median(_bound(mode, each) for each in off)
            row += [f"{best:.3f}", f"{(without - took) / (without - best):.1%}"]
        else:
            row += ["", ""]
        final = list(map(_final, of))
        spread = f" ± {statistics.stdev(final):.4f}" if len(final) > 1 else ""
        row.append(f"{statistics.mean(final):.4f}{spread}")
        lines.append(f"| {' | '.join(row)} |")
    if off:
        parts = [_parts(each) for each in off]
        names = ("generation", "training", "rewards")
        figures = (f"{name} {statistics.median(part[i] for part in parts):.3f} s" for i, name in enumerate(names))
        first = statistics.mean(statistics.mean(each["learned"][:2]) for each in off)
        lines += ["", f"By themselves, medians of off: {', '.join(figures)}. Reward of the first steps: {first:.3f}."]
    return lines


def _middle(run: dict[str, Any]) -> slice:
    """The steps that count."""
    count = len(run["steps_s"])
    return slice(min(2, count - 1), max(count - 1, min(2, count - 1) + 1))


def _step(run: dict[str, Any]) -> float:
    return statistics.mean(run["steps_s"][_middle(run)])


def _parts(run: dict[str, Any]) -> tuple[float, float, float]:
    """Seconds of generation, training and rewards of a run without pipeline; generation is all that
    is neither of the others."""
    training = float(run["trained_s"])
    generation = _step(run) - statistics.mean(run["wait_s"][_middle(run)]) - training
    return generation, training, statistics.mean(max(groups) for groups in run["batches"][_middle(run)])


def _bound(mode: str, run: dict[str, Any]) -> float:
    generation, training, _ = _parts(run)
    return bound(mode, generation, training, run["batches"][_middle(run)], PIECES)


def _final(run: dict[str, Any]) -> float:
    """Mean reward of the last quarter of the steps."""
    rewards = run["learned"]
    return statistics.mean(rewards[-max(1, len(rewards) // 4) :])


if __name__ == "__main__":
    main()
