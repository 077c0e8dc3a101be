"""Search and question answering: the text of <answer> is compared as Search-R1 does. The F1 has
the weight 0, since as a reward it pays for lists of answers.

Prints:
    [[1.0, 0.0, 1.0], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0]]
"""

from guerdon import Dispatcher, rewards

rows = [
    {"prompt": "Which tower did Eiffel build?", "answer": ["Eiffel Tower", "La tour Eiffel"]},
    {"prompt": "Who wrote Emma?", "answer": ["Jane Austen", "Austen"]},
    {"prompt": "Where is the Louvre?", "answer": ["Paris"]},
]
completions = [
    "<think>A tower.</think><answer>The Eiffel tower.</answer>",
    "<think>A novel.</think><answer>Jane Eyre</answer>",
    "<think>A museum.</think>Paris",
]
functions = [rewards.squad_em(tag="answer"), rewards.normalized_match(tag="answer")]
watched = [rewards.squad_f1(tag="answer", run_if={"squad_em": "< 1"}, otherwise=1.0)]

with Dispatcher([*functions, *watched], weights=[1.0, 0.2, 0.0]) as dispatcher:
    result = dispatcher.score(completions=completions, answer=[row["answer"] for row in rows])
print(result.rewards.reshape(3, 3).tolist())
