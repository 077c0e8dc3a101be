r"""Notations that ``notation="lenient"`` reads: pairs of a gold answer and the answer in a box.

A pair that is not decided without it is math-verify's to say.
"""

from __future__ import annotations

import time

import pytest

from guerdon import RegistrationError, rewards
from guerdon.rewards.math.lenient import prepared
from guerdon.rewards.math.verify import accuracy

# gold | answers that are right || answers that are wrong, separated by two blanks
TABLE = r"""
\frac{1}{8} | \frac18  \dfrac18  \tfrac18  1/8  0.125  \frac{2}{16}  ⅛ || \frac81  \frac{1}{80}  18  0.12
\frac{3}{47} | \frac3{47}  3/47  \dfrac{3}{47} || \frac{347}{1}  3.47  47/3
\frac{12}{5} | \frac{12}5  2.4  2\frac25  2 2/5  \frac{24}{10} || \frac{1}{25}  2/5  22/5
3\frac12 | \frac{7}{2}  3.5  7/2  3 1/2  3½  3\frac{1}{2}  3 \frac{1}{2} || \frac{3}{2}  1.5  31/2  3
-3\frac12 | -3.5  -\frac{7}{2}  -7/2 || 3.5  -2.5  -1.5
1500 | 1.5e3  1.5E3  1,500  1\,500  1{,}500  1 500  1.5\times10^3  1.5 \cdot 10^{3}  1500.0 || 1.5  15000  1.5e4  501
1.5e3 | 1500  1.5 \times 10^3  1,500 || 1.5  4.5
2e-3 | 0.002  2\times10^{-3}  \frac{1}{500}  1/500 || 0.02  2000
12000 | 12\,000  12{,}000  12,000  12 000  12\ 000  1.2e4 || 12  12.000  1200
½ | 0.5  \frac12  1/2  \frac{1}{2} || 2  12  0.25
¾ | 0.75  3/4  \frac34 || 34  4/3
√2 | \sqrt{2}  \sqrt2  √{2} || 2  \sqrt3
2√3 | 2\sqrt{3}  2\sqrt3  \sqrt{12} || \sqrt{6}  6
5 \text{ cm} | 5  5 cm  5\text{ centimeters}  5 \mathrm{cm} || 5 \text{ meters}  5 m  50 mm  6 cm
5 \text{ meters} | 5 m  5  5 \text{ metres} || 5 cm  5 feet  5 seconds
60^\circ | 60°  60  60^{\circ}  60 degrees  60 \text{ degrees} || 6  60\%  30^\circ
10 \text{ million} | 10000000  10,000,000  1e7 || 10  10 \text{ billion}  1000000
9\% | 9\%  0.09  9 percent || 9  0.9  90\%
\$10 | 10  \$10.00  10 dollars || \$100  10\%
0.\overline{3} | \frac13  1/3  \frac{1}{3} || 0.3  0.33  0.3333333  3
0.1\overline{6} | \frac16  1/6 || 0.16  \frac{1}{60}
\frac13 | \frac{1}{3}  1/3  2/6 || 0.3333333  0.333  3
0.1 | \frac{1}{10}  0.10  .1 || 0.10000001  0.01
\frac{1}{2^{99}} | \frac{2}{2^{100}} || \frac{1}{2^{98}}
1/2004! | \frac{1}{2004!} || 1/2006!  1/2004
- 5 | -5  −5 || 5
+7 | 7  +7 || -7
2x | 2x || 2  2y
3i | 3i || 3  3j
C | C  (C)  \text{C}  c  C.  (C) twelve || D  Cat  3
Yes | Yes  yes  \text{Yes}  Yes. || No  Y
\varnothing | \emptyset  ∅ || 0
\pi | π || 3.14159265  2\pi
\ln 2 | \log_e 2 || \log 3
(1, 2) | (1,2)  \left(1, 2\right) || (2, 1)  (1, 3)
x^2 | x²  x^{2} || x^3  2x
(0, 180) | (0,180)  \left(0,180\right) || 0180  180  [0, 180]
(100,200) | (100, 200) || 100200  (100, 201)
\{100, 200\} | \{100,200\} || \{100, 201\}
1,234,567 | 1234567  1\,234\,567 || 1234  (1, 234, 567)
5\,\text{cm} | 5~\text{cm}  5\ \mathrm{cm}  5\text{ cm}  5 || 5\,\text{m}  5\;\mathrm{m}
25 \text{ cm}^2 | 25\,\text{cm}^2  25 \text{ cm}^{2}  25 cm²  25 || 25\,\text{cm}^3  25\,\text{m}^2  25 \text{ cm}
25 square cm | 25\text{ cm}^2  25 sq cm  25 \text{ square centimeters}  25 || 25 cubic cm  25 cm  25 square m
60 miles per hour | 60 \text{ miles per hour}  60 || 60 \text{ miles per minute}  6
60 \text{ km/h} | 60 km/h  60 || 60 m/s
3 boxes | 3\text{ box}  3 || 3 bottles
3xy | 3xy || 3  3x
3 | \text{3 cm}  \approx 3 || 3x^2  3mn  3 or four
€5 | €5.00  5€  5 || €6  5\%
½π | \frac{\pi}{2}  \frac12\pi || \pi  \frac{2}{\pi}
8{:}30 | 8:30 || 8:45
[1000, 2000] | [1,000, 2,000] || [1, 0, 2, 0]
x=1000, y=2000 | x=1,000,y=2,000 || x=1, y=2
3 planes | 3\text{ plane}  3 || 3 plans
5 \text{ Hz} | 5Hz  5 || 5 \text{ W}
12 eggs | 12eggs  12 || 12 hens
3½ | 3.5 || \frac{3}{2}
3x/y | \frac{3x}{y} || 3
€7 | 7€  7 || \$7  £7
\begin{pmatrix} 1 \\ 2 \end{pmatrix} | \begin{pmatrix}1\\2\end{pmatrix} || \begin{pmatrix} 2 \\ 1 \end{pmatrix}
A | \textbf{(A)}\ 5  \textbf{(A) } 5  \text{A. Paris}  \text{Option A}  A: 5  A. Vitamin B or C  A. (p or q) || \textbf{(B)}\ 5  \text{Option B}  AB  A, B
A | A || (A) or (B)  A. or B.  \text{(A) 5 or (B) 6}
B | (B) both (A) and (C)  B. either A or C || (C) B
""".strip().split("\n")
PAIRS = [
    (gold.strip(), answer.strip(), value)
    for line in TABLE
    for gold, _, rest in [line.partition(" | ")]
    for answers, value in zip(rest.split(" || "), (1.0, 0.0), strict=True)
    for answer in answers.split("  ")
]
TEXTS = [
    # gold text, completion, value
    ("2", "So it is 2.\n#### 2", 1.0),
    ("2", "**Answer:** 2", 1.0),
    ("2", "Answer: 3\nNo.\nThe answer is $2$.", 1.0),
    ("#### 1,234", r"\boxed{1234}", 1.0),
    ("2", r"\boxed{1} or rather \boxed{2}", 1.0),
    ("2", r"\boxed{2} or rather \boxed{1}", 0.0),
    ("2", r"<think>\boxed{2}</think> I don't know.", 0.0),
    ("2", r"<think>\boxed{1}</think> \boxed{2}", 1.0),
    ("2", r"<think>\boxed{2}", 0.0),
    ("2", r"\boxed 2", 1.0),
    ("2", r"\fbox{2}", 1.0),
    ("2", "2", 1.0),
    ("1/2", "<think>2</think>\n½.", 1.0),
    ("2", "We get 2", 0.0),
    ("2", "2 or 3", 0.0),
    ("1500", "So it is $1.5e3$.", 1.0),
    ("1500", "First $15$, then $1500$.", 1.0),
    ("1500", "First $1500$, then $15$.", 0.0),
    ("1/8", r"Hence \(\frac18\).", 1.0),
    ("1/8", r"Hence \[ \frac18 \]", 1.0),
    ("1/8", r"Hence $$\frac18$$", 1.0),
    ("12000", r"It costs \$5 and then $12\,000$ in all.", 1.0),
    ("5", r"It costs \$5.", 0.0),
    ("2", r"\boxed{2", 0.0),
    ("", r"\boxed{2}", None),
    ("2", "<think>3</think><answer>2</answer>", 1.0),
    ("2", "<answer> 3 </answer>", 0.0),
    ("1/2", r"<answer>\(\frac{1}{2}\)</answer>", 1.0),
    ("Yes", "<answer>Yes</answer>", 1.0),
    ("2", r"<answer></answer> \boxed{2}", 1.0),
    ("2", r"The format is <answer>3</answer>. \boxed{2}", 1.0),
    ("2", "<answer>For $n=3$, it is $2$</answer>", 1.0),
    ("2", "<think>3</think><|begin_of_box|>2<|end_of_box|>", 1.0),
    ("2", "#### Step 3: Conclude\nThe result is $2$.", 1.0),
    ("2", "#### 2. Compute\nThe end.", 0.0),
    ("2", "#### 2 dollars\nThat is all.", 1.0),
    ("2", "#### Answer: 2", 1.0),
    ("x+1", "#### x+1\nDone.", 1.0),
    ("New York", "#### New York\nDone.", 1.0),
    ("twice as large", "The answer is twice as large", 1.0),
    ("2", "The answer is 2, since 1 + 1 = 2.", 1.0),
    ("2", "The answer is 3 because it isn't 2.", 0.0),
    ("A", "The answer is A because it fits.", 1.0),
    ("2", "The answer is **2**.", 1.0),
    ("2", "**2**", 1.0),
    ("2", "Answer: `2`", 1.0),
    ("2", "Answer: 2<|im_end|>", 1.0),
    ("2", "Answer: 2</s>", 1.0),
]


@pytest.mark.parametrize("gold", sorted({gold for gold, _, _ in PAIRS}))
def test_notations_are_read(gold: str) -> None:
    pytest.importorskip("math_verify")
    for wanted, answer, value in PAIRS:
        if wanted == gold:
            assert accuracy(gold, rf"\boxed{{{answer}}}", strict=False, lenient=True) == value, (gold, answer)


@pytest.mark.parametrize(("gold", "text", "value"), TEXTS)
def test_the_answer_is_found(gold: str, text: str, value: float | None) -> None:
    assert prepared(gold, text) == value
    assert rewards.math_reward(notation="lenient")(completions=[text], solution=[gold]) == [value]


@pytest.mark.parametrize("answer", [rf"\sqrt{{{'a' * 50_000}}}", f"1{' ' * 50_000}!", "1/" * 20_000])
def test_a_long_answer_is_read_in_no_time(answer: str) -> None:
    begun = time.process_time()
    prepared("2", rf"\boxed{{{answer}}}")
    assert time.process_time() - begun < 2


def test_the_option_is_one_of_two() -> None:
    assert rewards.math_equal("1500", "1.5e3", notation="lenient")
    assert not rewards.math_equal("5 cm", "5 m", notation="lenient")
    with pytest.raises(RegistrationError, match="notation='loose'"):
        rewards.math_reward(notation="loose")  # type: ignore[arg-type]
