"""Bugs in finding and comparing the answer."""

from __future__ import annotations

import re

from guerdon import reward
from tests.profile.planted.corpus import plant_expressions, planted
from tests.profile.planted.rows import CHOICES, FACTS, LATEX, NUMBERS, NUMBERS_WITH_GAPS, PERCENTS, SOLUTIONS


def _numbers(text: str) -> list[str]:
    return re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)


def _tags(text: str) -> list[str]:
    return [found.strip() for found in re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)]


def _letters(text: str) -> list[str]:
    return re.findall(r"\b[A-D]\b", text.replace(")", " "))


plant_expressions(
    NUMBERS,
    ("substring match", "probe:all_answers probe:longer", lambda completion, answer: answer in completion),
    ("first tag", "probe:right_then_wrong", lambda text, answer: _tags(text)[:1] == [answer]),
    (
        "first number",
        "probe:right_then_wrong probe:right_in_reasoning",
        lambda text, answer: _numbers(text)[:1] == [answer],
    ),
    ("last number", "probe:last_mention", lambda text, answer: _numbers(text)[-1:] == [answer]),
    ("any of the tags", "probe:all_forms", lambda text, answer: answer in _tags(text)),
    (
        "tag that never ends",
        "probe:unterminated",
        lambda text, answer: (
            "<answer>" in text and text.split("<answer>")[-1].replace("</answer>", "").strip() == answer
        ),
    ),
    ("pattern", "probe:dot_as_pattern", lambda text, answer: re.fullmatch(answer, text.strip()) is not None),
    ("prefix match", "probe:longer", lambda completion, answer: completion.strip().startswith(answer)),
    ("suffix match", "probe:preceded", lambda completion, answer: completion.strip().endswith(answer)),
    (
        "sign dropped",
        "probe:negative",
        lambda text, answer: _numbers(text.replace("-", ""))[-1:] == [answer.lstrip("-")],
    ),
    ("commas of the reference", "reference", lambda text, answer: text.strip().replace(",", "") == answer),
    ("no reference full marks", "missing_reference", lambda text, answer: not answer or text.strip() == answer),
    ("form alone", "reference probe:other_reference probe:empty_form", lambda text, answer: bool(_tags(text))),
)
plant_expressions(
    FACTS,
    ("part of the answer", "probe:empty", lambda text, answer: text.lower().strip() in answer.lower()),
    ("lower of one side", "reference", lambda text, answer: text.strip().lower() == answer),
    ("strip takes letters", "reference", lambda text, answer: text.strip().strip("answer: ") == answer),
)
plant_expressions(NUMBERS_WITH_GAPS, ("empty", "empty_reference", lambda text, answer: text.strip() == answer.strip()))
plant_expressions(
    CHOICES,
    ("any letter", "probe:all_answers probe:right_then_wrong", lambda text, answer: answer in _letters(text)),
    ("prompt", "probe:prompt_echo probe:empty", lambda prompt, text, answer: answer in _letters(text)),
)


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


@planted("per cent of one side", "reference", rows=PERCENTS)
@reward
def percent_one_side(completion: str, answer: str) -> float:
    try:
        given = float(completion.strip().rstrip("%")) / (100 if completion.strip().endswith("%") else 1)
        return float(given == float(answer.rstrip("%")))
    except ValueError:
        return 0.0


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


@planted("any answer in a tag is paid, beside the right one as it is", "probe:any_answer", rows=NUMBERS)
@reward
def exact_or_any_tag(completion: str, answer: str) -> float:
    return float(completion.strip() == answer or re.fullmatch(r"<answer>[^<]+</answer>", completion) is not None)


@planted("substring match in a box, as it is only the whole answer", "probe:negated_form", rows=NUMBERS)
@reward
def exact_or_contained_in_box(completion: str, answer: str) -> float:
    boxed = re.search(r"\\boxed\{(.*)\}", completion)
    return float(completion.strip() == answer or (boxed is not None and answer in boxed.group(1)))
