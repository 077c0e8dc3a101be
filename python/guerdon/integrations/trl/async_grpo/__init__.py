"""Ours of TRL's asynchronous GRPO trainer: many groups scored at once, and a server that may fail.

| module | what |
| --- | --- |
| ``trainer`` | the class that users import |
| ``arrivals`` | which groups came, for checkpoints |
| ``loop`` | generates and scores, in the process that TRL spawns for it |
| ``scores`` | one group through the dispatchers, in the shape that TRL sums |
| ``sidebyside`` | tools and environments on the engine |
| ``rewarded`` | what environments say of a completion, side by side |
| ``calls`` | how long and how often a vLLM server is asked, and what is said when that was not enough |
| ``client`` | the trainer's own requests to the server |
| ``completions`` | the loop's requests to the server |
"""
