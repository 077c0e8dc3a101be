"""Bugs in finding and comparing the answer."""

from __future__ import annotations

import re
from typing import Any

from guerdon import reward
from tests.profile.planted.corpus import planted
from tests.profile.planted.rows import CHOICES, FACTS, LATEX, NUMBERS, NUMBERS_WITH_GAPS, SOLUTIONS


@planted("substring match", "probe:all_answers", "probe:longer", rows=NUMBERS)
@reward
def substring(completion: str, answer: str) -> float:
    return 1.0 if answer in completion else 0.0


@planted("the completion is a substring of the reference", "probe:empty", rows=FACTS)
@reward
def reversed_substring(completion: str, answer: str) -> float:
    return float(completion.strip().lower() in answer.lower())


@planted("first number anywhere", "probe:right_then_wrong", "probe:right_in_reasoning", rows=NUMBERS)
@reward
def first_number(completion: str, answer: str) -> float:
    found = re.search(r"-?\d[\d,]*(?:\.\d+)?", completion)
    return float(found is not None and found.group() == answer)


@planted("last number anywhere", "probe:last_mention", rows=NUMBERS)
@reward
def last_number(completion: str, answer: str) -> float:
    found = re.findall(r"-?\d[\d,]*(?:\.\d+)?", completion)
    return float(bool(found) and found[-1] == answer)


@planted("any of the tags", "probe:all_forms", rows=NUMBERS)
@reward
def any_tag(completion: str, answer: str) -> float:
    return float(answer in [text.strip() for text in re.findall(r"<answer>(.*?)</answer>", completion, re.DOTALL)])


@planted("box that never ends", "probe:unterminated", rows=NUMBERS)
@reward
def open_box(completion: str, answer: str) -> float:
    start = completion.rfind("\\boxed{")
    if start < 0:
        return 0.0
    return float(completion[start + len("\\boxed{") :].split("}")[0].strip() == answer)


@planted("negation ignored", "probe:negated", "probe:negated_form", rows=FACTS)
@reward
def word_found(completion: str, answer: str) -> float:
    return float(re.search(rf"\b{re.escape(answer)}\b[.!]?$", completion, re.IGNORECASE) is not None)


@planted("bag of words", "probe:shuffled", rows=FACTS)
@reward
def bag_of_words(completion: str, answer: str) -> float:
    given, wanted = set(completion.lower().split()), set(answer.lower().split())
    both = len(given & wanted)
    return 2 * both / (len(given) + len(wanted)) if both else 0.0


@planted("the reference as a pattern", "probe:dot_as_pattern", rows=NUMBERS)
@reward
def unescaped(completion: str, answer: str) -> float:
    return float(re.fullmatch(answer, completion.strip()) is not None)


@planted("prefix match", "probe:longer", rows=NUMBERS)
@reward
def prefix(completion: str, answer: str) -> float:
    return float(completion.strip().startswith(answer))


@planted("suffix match", "probe:preceded", rows=NUMBERS)
@reward
def suffix(completion: str, answer: str) -> float:
    return float(completion.strip().endswith(answer))


@planted("sign dropped", "probe:negative", rows=NUMBERS)
@reward
def without_sign(completion: str, answer: str) -> float:
    found = re.findall(r"\d[\d,.]*", completion)
    return float(bool(found) and found[-1].rstrip(".") == answer.lstrip("-"))


@planted("digits up to the comma", "probe:thousands", rows=NUMBERS)
@reward
def up_to_the_comma(completion: str, answer: str) -> float:
    given, wanted = re.findall(r"-?\d+", completion.split("</think>")[-1]), re.findall(r"-?\d+", answer)
    return float(bool(given) and given[0] == wanted[0])


@planted("int() cuts decimals", "probe:decimals", rows=NUMBERS)
@reward
def whole_part(completion: str, answer: str) -> float:
    try:
        return float(int(float(completion.replace(",", ""))) == int(float(answer.replace(",", ""))))
    except ValueError:
        return 0.0


@planted("commas of the reference are kept", "reference", rows=NUMBERS)
@reward
def half_normalised(completion: str, answer: str) -> float:
    return float(completion.strip().replace(",", "") == answer)


@planted("the reference can't be read as a number", "exception", "reference", rows=NUMBERS)
@reward
def comma_raises(completion: str, answer: str) -> float:
    wanted = float(answer)
    try:
        return float(float(completion) == wanted)
    except ValueError:
        return 0.0


@planted("numbers read as another locale writes them", "probe:point_dropped", rows=NUMBERS)
@reward
def other_locale(completion: str, answer: str) -> float:
    def read(text: str) -> str:
        return text.strip().replace(".", "").replace(",", ".")

    return float(read(completion) == read(answer) != "")


@planted("nan passes the tolerance", "probe:nan", rows=NUMBERS)
@reward
def nan_passes(completion: str, answer: str) -> float:
    try:
        apart = abs(float(completion.replace(",", "")) - float(answer.replace(",", "")))
    except ValueError:
        return 0.0
    return 0.0 if apart > 1e-6 else 1.0


@planted("distance as a reward, of inf", "not_finite", rows=NUMBERS)
@reward
def distance(completion: str, answer: str) -> float:
    try:
        return -abs(float(completion.replace(",", "")) - float(answer.replace(",", "")))
    except ValueError:
        return -1e6


@planted("empty equals empty", "empty_reference", rows=NUMBERS_WITH_GAPS)
@reward
def empty_is_equal(completion: str, answer: str) -> float:
    return float(completion.strip() == answer.strip())


@planted("no reference, full marks", "missing_reference", rows=NUMBERS)
@reward
def benefit_of_doubt(completion: str, answer: str | None) -> float:
    if not answer:
        return 1.0
    return float(completion.strip() == answer)


@planted("eval of completions", "probe:code", "crash", rows=NUMBERS)
@reward(timeout=2)
def evaluated(completion: str, answer: str) -> float:
    try:
        return float(eval(completion) == float(answer.replace(",", "")))
    except Exception:
        return 0.0


@planted("the whole solution is compared, never the final answer", "reference", "probe:shuffled", rows=SOLUTIONS)
@reward
def characters(completion: str, answer: str) -> float:
    given, wanted = sorted(completion.replace(" ", "")), sorted(answer.split("####")[-1].replace(" ", ""))
    return float(given == wanted)


@planted("brackets in LaTeX cut short", "reference", rows=LATEX)
@reward
def greedy_box(completion: str, solution: str) -> float:
    def boxed(text: str) -> str | None:
        found = re.findall(r"\\boxed\{([^}]*)\}", text)
        return found[-1] if found else None

    given, wanted = boxed(completion), solution.split("\\boxed{")[-1].rsplit("}", 1)[0]
    return float(given is not None and given == wanted)


@planted("the prompt counts", "probe:prompt_echo", "probe:empty", rows=CHOICES)
@reward
def prompt_counts(prompt: str, completion: str, answer: str) -> float:
    letters = re.findall(r"\b[A-D]\b", completion.replace(")", " "))
    return float(answer in letters)


@planted(
    "a wrong answer in the right form gets nearly all",
    "reference",
    "probe:other_reference",
    "probe:empty_form",
    rows=NUMBERS,
)
@reward
def form_alone(completion: str, answer: str, **row: Any) -> float:
    return float(re.search(r"<answer>.*?</answer>", completion, re.DOTALL) is not None)


@planted("any answer in a tag is paid, beside the right one as it is", "probe:any_answer", rows=NUMBERS)
@reward
def exact_or_any_tag(completion: str, answer: str) -> float:
    return float(completion.strip() == answer or re.fullmatch(r"<answer>[^<]+</answer>", completion) is not None)


@planted("substring match in a box, as it is only the whole answer", "probe:negated_form", rows=NUMBERS)
@reward
def exact_or_contained_in_box(completion: str, answer: str) -> float:
    boxed = re.search(r"\\boxed\{(.*)\}", completion)
    return float(completion.strip() == answer or (boxed is not None and answer in boxed.group(1)))
