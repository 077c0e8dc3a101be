"""Following instructions, with the columns of google/IFEval: the share of instructions that were
followed.

Prints:
    [[1.0, 1.0], [0.5, 0.0], [1.0, 1.0]]
"""

from guerdon import Dispatcher, rewards

short = {"num_words": 12, "relation": "less than"}
rows = [
    {
        "prompt": "Name a city in at least three words, without commas.",
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
        "kwargs": [{}, {"num_words": 3, "relation": "at least"}],
    },
    {
        "prompt": "Describe rain in fewer than 12 words; the word cloud has to be in it.",
        "instruction_id_list": ["keywords:existence", "length_constraints:number_words"],
        "kwargs": [{"keywords": ["cloud"]}, short],
    },
    {
        "prompt": "Answer in JSON.",
        "instruction_id_list": ["detectable_format:json_format"],
        "kwargs": [{}],
    },
]
completions = ["It is Rome", "Water falls from the sky.", '{"city": "Rome"}']
functions = [rewards.ifeval(score="share"), rewards.ifeval(name="loosely", loose=True)]

with Dispatcher(functions) as dispatcher:
    result = dispatcher.score(
        completions=completions,
        instruction_id_list=[row["instruction_id_list"] for row in rows],
        kwargs=[row["kwargs"] for row in rows],
    )
print(result.rewards.reshape(3, 2).tolist())
