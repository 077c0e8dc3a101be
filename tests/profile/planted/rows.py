"""Rows that look like those of usual data sets, made here."""

from __future__ import annotations

from typing import Any

_SUMS = [
    ("A baker sells 14 rolls in the morning and 9 in the evening. How many is that?", "23"),
    ("A train has 12 coaches of 64 seats. How many seats are there?", "768"),
    ("Nora had 5 apples and ate all of them. How many are left?", "0"),
    ("A field is 35 m long and 20 m wide. What is its area in square metres?", "700"),
    ("A book has 318 pages. Ida read 129 of them. How many are left?", "189"),
    ("Three friends share 57 nuts. How many does each get?", "19"),
    ("A town grew from 1,180 to 2,430 people. By how many?", "1,250"),
    ("A car drives 96 km an hour. How far does it get in 7 hours?", "672"),
    ("It was 4 degrees, then it fell by 11. How cold is it?", "-7"),
    ("A factory makes 640 lamps a day. How many in 25 days?", "16,000"),
    ("A ribbon of 9.3 m is cut into 3. How long is each piece?", "3.1"),
    ("A dozen eggs cost 3 coins. What do 60 eggs cost?", "15"),
    ("A shelf carries 8 boards of 27 books. How many books?", "216"),
    ("Half of 86 sheep are white. How many are?", "43"),
    ("A pump moves 75 litres a minute. How many in 16 minutes?", "1,200"),
    ("Sam is 47, and his son is 29 years younger. How old is the son?", "18"),
]
NUMBERS = [{"prompt": question, "answer": final} for question, final in _SUMS]
SOLUTIONS = [
    {"prompt": question, "answer": f"We work it out from what is given, in one or two steps.\n#### {final}"}
    for question, final in _SUMS
]
NUMBERS_WITH_GAPS: list[dict[str, Any]] = [*NUMBERS, {"prompt": "How many stars are there?", "answer": ""}]

PERCENTS = [{"prompt": f"Which share is {n} of 400?", "answer": f"{n / 4:g}%"} for n in range(12, 220, 14)]

_FACTS = [
    ("Which planet is nearest to the sun?", "Mercury"),
    ("Who wrote the play Hamlet?", "William Shakespeare"),
    ("What is the largest ocean?", "Pacific Ocean"),
    ("Which metal is liquid at room temperature?", "quicksilver"),
    ("What is the capital of Norway?", "Oslo"),
    ("Which gas do plants take from the air?", "carbon dioxide"),
    ("What do bees make?", "honey"),
    ("Which instrument has 88 keys?", "the grand piano"),
    ("What is frozen water called?", "ice"),
    ("Which sea lies between Europe and Africa?", "Mediterranean Sea"),
    ("Which animal is the tallest?", "giraffe"),
    ("What is the longest bone of the body?", "thigh bone"),
    ("Who painted the Mona Lisa?", "Leonardo da Vinci"),
    ("Which season follows winter?", "spring"),
]
FACTS = [{"prompt": question, "answer": final} for question, final in _FACTS]
CHATS = [{"prompt": [{"role": "user", "content": question}], "answer": final} for question, final in _SUMS]

CHOICES = [
    {"prompt": f"{question}\nA) red\nB) blue\nC) green\nD) none", "answer": letter}
    for question, letter in zip(
        (f"Which colour has sign number {n} on the wall of the station?" for n in range(1, 17)),
        "ABCDBADCCABDDBCA",
        strict=True,
    )
]

LATEX = [
    {"prompt": f"Give the value, problem {number}.", "solution": f"It follows that $x = \\boxed{{{value}}}$."}
    for number, value in enumerate(
        (
            *("\\frac{3}{4}", "\\sqrt{7}", "12", "\\frac{1}{9}", "2\\pi", "-5", "\\frac{63}{400}", "8"),
            *("3\\sqrt{2}", "\\frac{5}{11}", "101", "\\frac{\\pi}{6}"),
        )
    )
]

_GROUP = ("It is {}.", "{}", "{}", "No idea.")
ROLLOUTS = [
    {"prompt": question, "answer": final, "completion": text.format(final)}
    for question, final in _SUMS[:8]
    for text in _GROUP
]
"""Completions in groups of four."""

REASONED = [
    {
        "prompt": question,
        "answer": final,
        "completion": f"<think>\nStep by step.\n</think>\n<answer>\n{final if place % 3 else 'unknown'}\n</answer>",
    }
    for place, (question, final) in enumerate(_SUMS)
]
