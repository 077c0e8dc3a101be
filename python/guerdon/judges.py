"""``judge`` and ``http_reward``: a model that grades, or a reward service behind a URL, as a reward
function whose requests need no Python."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, Literal

from guerdon import parse as parsers
from guerdon._functions.cache_folder import Cache
from guerdon._functions.conditions import RunIf
from guerdon._functions.options import BATCH_WAIT, batching, flag
from guerdon._functions.votes import Votes, votes_of, with_votes
from guerdon._lanes.http import dialects
from guerdon._lanes.http.body import ColumnValue, ColumnValues
from guerdon._lanes.http.composite import CompositeReward, parser_of, with_fallback, with_parser
from guerdon._lanes.http.fleet import checked_endpoints
from guerdon._lanes.http.options import build, extra_body, name_of, non_empty_text
from guerdon._lanes.http.reward import HttpReward, is_given
from guerdon._lanes.http.server import Server, server_of
from guerdon._lanes.http.template import Field
from guerdon.errors import GuerdonWarning, RegistrationError, with_known_options
from guerdon.limits import Limit
from guerdon.parse import Parse

__all__ = ["http_reward", "judge"]

_PLURAL = {"prompt": "prompts", "completion": "completions", "text": "texts"}


def _without_repair(options: dict[str, Any]) -> None:
    """Puts ``repair=`` into ``parse=``."""
    warnings.warn(
        "judge(repair=) is deprecated: leave repair=True out, and write parse=parse.number().without_repair() for False.",
        GuerdonWarning,
        stacklevel=3,
    )
    if not flag(str(options.get("name", "judge")), "repair", options.pop("repair")):
        given = options.get("parse")
        parse = parsers.number() if given is None else given
        options["parse"] = parse.without_repair() if isinstance(parse, Parse) else parse


@partial(with_known_options, values=(Server, Votes, Limit), deprecated={"repair": _without_repair})
def judge(
    *,
    base_url: str | Sequence[str] | Mapping[str, float] | Sequence[tuple[str, float]] | None = None,
    server: Server | None = None,
    model: str,
    prompt: str | Sequence[Mapping[str, str]] | Sequence[str] | Mapping[str, Any],
    parse: Parse | Callable[[str], float | None] | None = None,
    system: str | None = None,
    pass_messages: bool = False,
    images: str | Sequence[str] | None = None,
    api: Literal["chat", "completions", "responses", "anthropic", "score", "classify", "pooling"] = "chat",
    max_tokens: int | None = None,
    temperature: float | None = 0.0,
    response_format: Mapping[str, Any] | Literal["json_object", "json_schema"] | None = None,
    stream: bool = False,
    body: Mapping[str, Any] | None = None,
    votes: int | Votes = 1,
    fallback: object = None,
    api_key_env: str | None = None,
    keep_answers: bool = False,
    name: str = "judge",
    timeout: float | str | None = "default",
    total_timeout: float | None = None,
    retries: int = 3,
    limit: Limit | None = None,
    on_failure: str | float = "nan",
    max_failure_rate: float | None = None,
    run_if: RunIf | None = None,
    otherwise: float | None = None,
    pure: bool | None = None,
    cache: str | PathLike[str] | Cache | None = None,
    cache_version: str | None = None,
) -> HttpReward:
    """Make a reward function that asks a model behind a server, one request a sample: one that
    writes (OpenAI's APIs, Anthropic's), or a reward model.

    Requests are built, sent and read without Python: thousands may be in flight at once.

    Args:
        base_url: The server's address, as for its other clients: ``"http://localhost:8000/v1"``. A
            list is a fleet of the same model (docs/limits.md): ``["http://a:8000/v1", …]``, or a
            dict from addresses to weights.
        server: Instead of ``base_url`` and ``api_key_env``: a `guerdon.Server`, with headers,
            certificates, hedging and prices.
        model: Its name there.
        prompt: What the judge is asked, with the sample's columns as in ``str.format``:
            ``"Rate this: {completion}"``. Any column of the dataset, ``{prompt}``,
            ``{completion}``, and ``{text}``, the last assistant message; ``{conversation}`` is all
            turns of both. Conversational values are filled in as their text, with tool calls. Or a
            list of messages, ``[{"role": …, "content": …}]``, with the same placeholders. A reward
            model gets such a text or messages, ``api="score"`` two texts,
            ``("{prompt}", "{completion}")``; a dict is all fields of its request.
        parse: How the score is read out of the answer, see `guerdon.parse`; the one number in it by
            default. Or a function of yours, called with the answer's text in a worker: it returns a
            number, or None to abstain; if it raises, or takes over 5 s (``reward(function,
            timeout=…)`` says otherwise), that is an `error`. The judge is not asked again then.
        system: A system message before the prompt, with placeholders too.
        pass_messages: Send the sample's prompt and completion as messages, as they are, before the
            judge's own; for ``"chat"``, ``"responses"`` and ``"anthropic"``, in the form of each.
        images: The column with the sample's images, one or a list: PIL images, bytes, or ``data:``
            and ``http:`` URLs; or several columns. They go into the judge's last message, or, with
            ``pass_messages``, where the prompt has ``{"type": "image"}``; for the same APIs.
        api: ``"chat"``; ``"completions"``, for models without a chat template; OpenAI's
            ``"responses"``; Anthropic's messages, ``"anthropic"``; or a reward model's ``"score"``,
            ``"classify"`` or ``"pooling"``, as vLLM and SGLang have them. Its number is the score;
            where there are several, ``parse=parse.json("data.0.probs.1")`` names one.
        max_tokens: Longest answer, by the name that the API of the model has for it; the server's
            own default if None (1 for ``parse.logprob``, 1024 for ``"anthropic"``).
        temperature: None leaves it to the server.
        response_format: A dict is passed on as it is; ``"json_object"``; or ``"json_schema"``, a
            schema with a number in the field of ``parse.json(field)``, or with a reason and a
            number for each criterion of ``parse.rubric``. Servers without structured output answer
            with an error.
        stream: Have the answer streamed, and end the request as soon as nothing that may follow can
            change the score: with ``parse.logprob`` after the first token, with ``which="first"``
            once it stands there. The server writes no more then.
        body: More fields of the request's JSON; they override those above.
        votes: Requests a sample, made into one score, the median; or a `guerdon.Votes`.
        fallback: A second judge, or another function of single samples, for the samples on which
            this judge fails after its ``retries``, and for all while its circuit breaker is open.
            It keeps its own prompt, parser and limit. ``result.extra["<name>/failed"]`` then has
            the reason, and ``<name>/by`` the name of the second.
        api_key_env: Name of the environment variable that holds the API key.
        keep_answers: Keep what the judge said in `RewardBatch.extra`: ``<name>/answer``,
            ``/reasoning``, ``/finish_reason``, ``/request_id``, ``/model``, ``/prompt_tokens``,
            ``/completion_tokens``, ``/reasoning_tokens``.
        name: In metrics, files and messages; unique in a dispatcher.
        timeout: Seconds that one attempt may take, from connecting to the last byte. Default 30;
            None: no timeout.
        total_timeout: As for `guerdon.reward`, like the options below.
        retries: Attempts after the first: for timeouts, broken connections, 408, 425, 5xx, and
            answers without a score; not for other statuses. A throttled call (429) is deferred and
            does not use up retries, see `guerdon.Limit`.
        limit: Requests in flight (256 by default, fewer while the server throttles) and rates.
            While the circuit breaker is open, calls wait, for five minutes at most.
        run_if: Ask only about samples on which these conditions hold: ``{"correct": "< 1"}``.
        otherwise: What the others get, see docs/options.md.
        pure: Identical requests in flight are sent once and share the answer (docs/options.md). By
            default at temperature 0; votes of one call are never merged.
        cache: Folder in which scores are kept, as for `guerdon.reward`: a model is known by its
            name, whichever server answers. With ``cache_version`` for what the name does not say.

    Raises:
        RegistrationError: An option is wrong; the message names it.

    Examples:
        >>> from guerdon import judge, parse
        >>> judge(
        ...     base_url="http://localhost:8000/v1",
        ...     model="Qwen/Qwen3-8B",
        ...     prompt="Question: {prompt}\\nAnswer: {completion}\\nGrade it from 0 to 10 in <score></score>.",
        ...     parse=parse.tag("score"),
        ... )
        <reward function 'judge': http://localhost:8000/v1/chat/completions, timeout 30 s>
    """
    given = dict(locals())
    name = name_of(name)
    asked_votes = votes_of(name, votes)
    scored = api in dialects.SCORES
    if scored and parse is not None and getattr(parse, "kind", "") != "json":
        raise RegistrationError(
            f"reward function {name!r}: parse={parse!r}: api={api!r} answers with numbers; parse=parse.json(path) says which."
        )
    if scored and keep_answers is True:
        raise RegistrationError(
            f"reward function {name!r}: keep_answers=True: api={api!r} answers with numbers, not words."
        )
    reached, option = server_of(name, given, "base_url")
    endpoints = checked_endpoints(name, option, dialects.PATHS.get(str(api), ""), reached.base_url)
    path = parse.value if scored and isinstance(parse, Parse) else ""
    parser = parser_of(name, parse) if callable(parse) else None
    parse = parsers.number() if parse is None else parse if parser is None else Parse("function", repair=False)
    if not isinstance(parse, Parse) or (parse.kind == "function") != (parser is not None):
        raise RegistrationError(
            f"reward function {name!r}: parse={parse!r}: expected a parser of guerdon.parse, such as parse.number(), or a function of the answer."
        )
    if parser is not None and stream:
        raise RegistrationError(
            f"reward function {name!r}: stream=True with a parser of yours, which gets whole answers."
        )
    question = dialects.Question(
        name,
        api,
        prompt,
        system,
        parse,
        max_tokens=max_tokens,
        newer=dialects.wants_newer_names(url for url, _ in endpoints),
        temperature=temperature,
        response_format=response_format,
        stream=flag(name, "stream", stream),
        repair=parse.repair,
        pass_messages=flag(name, "pass_messages", pass_messages),
        images=images,
    )
    asked = {"model": non_empty_text(name, "model", model), **dialects.request(question)}
    added = extra_body(name, body)
    if added.get("stream"):
        raise RegistrationError(f"reward function {name!r}: body={{'stream': …}}: pass stream=True instead.")
    # A field of `body` goes before the option.
    if "max_completion_tokens" in added:
        asked.pop("max_tokens", None)
    made = build(
        judge,
        given,
        {**asked, **added},
        same_answers=added.get("temperature", temperature) == 0,
        address=("base_url", dialects.PATHS[api]),
        api="score" if scored else api,
        parse=parse,
        path=path,
        usual_headers=dialects.headers(api),
    )
    if not made.spec.wants.required:
        raise RegistrationError(
            f"reward function {name!r}: prompt={prompt!r}: it has no field, so all samples would be asked the same. Name the "
            "columns that the judge is to see, as in {completion}."
        )
    if parser is not None:
        made.spec = replace(made.spec, parser=parser)
    if fallback is not None:
        return CompositeReward((judge, given), with_fallback(made, fallback, asked_votes.count))
    if asked_votes.count == 1:
        return made if parser is None else CompositeReward((judge, given), with_parser(made.spec))
    if is_given(made, "pure", True):
        raise RegistrationError(
            f"reward function {name!r}: pure=True with votes={asked_votes.count}: votes are requests of their own, and none stands for another."
        )
    if temperature == 0:
        warnings.warn(
            f"reward function {name!r} asks for votes={asked_votes.count} at temperature 0, where a judge gives the same answer each time. Give "
            "temperature=, such as 0.7, or None for the server's own.",
            GuerdonWarning,
            stacklevel=3,
        )
    return CompositeReward((judge, given), with_votes(made.spec, asked_votes))


@partial(with_known_options, values=(Server, Limit))
def http_reward(
    url: str | Sequence[str] | Mapping[str, float] | Sequence[tuple[str, float]] | None = None,
    *,
    server: Server | None = None,
    columns: Sequence[str] | Mapping[str, str] = ("prompt", "completion"),
    batch_size: int | None = None,
    batch_wait: float = BATCH_WAIT,
    score: str | None = None,
    body: Mapping[str, Any] | None = None,
    api_key_env: str | None = None,
    name: str = "http_reward",
    timeout: float | str | None = "default",
    total_timeout: float | None = None,
    retries: int = 3,
    limit: Limit | None = None,
    on_failure: str | float = "nan",
    max_failure_rate: float | None = None,
    run_if: RunIf | None = None,
    otherwise: float | None = None,
    pure: bool | None = None,
    cache: str | PathLike[str] | Cache | None = None,
    cache_version: str | None = None,
) -> HttpReward:
    """Make a reward function that POSTs samples as JSON to a reward service, one a request or up to
    ``batch_size``.

    One sample goes as ``{"prompt": …, "completion": …}``, many as
    ``{"prompts": […], "completions": […]}``. The response is ``{"score": 0.5}``,
    ``{"reward": 0.5}`` or a number; for many ``{"rewards": […]}``, ``{"scores": […]}`` or a list,
    in the order of the request; values are numbers, objects with ``"score"`` or ``"reward"``, or
    null, which abstains.

    Args:
        url: Where to POST; a list, or a dict with weights, as ``base_url`` of `guerdon.judge`.
        columns: What is sent: names of dataset columns, ``prompt``, ``completion``,
            ``completion_ids``, ``text``; a mapping from the service's names to them renames,
            ``{"query": "completion", "label": "answer"}``.
        batch_size: Samples a request at most; None sends one, as fields and not as lists. A request
            that fails is repeated in halves, down to the sample that fails, unless no sample is to
            blame: no connection, 401, 403, 404, 429.
        batch_wait: As for `guerdon.reward`, like the options below that `guerdon.judge` does not
            describe.
        score: Path to the numbers in the response: ``"result.score"``, ``"data.*.score"`` for a
            field of each object of a list.
        body: More fields of the request's JSON.
        server: Instead of ``url`` and ``api_key_env``: a `guerdon.Server`.
        api_key_env: As for `guerdon.judge`, like all the others.
        name: In metrics, files and messages; unique in a dispatcher.
        limit: Requests in flight (256 by default) and a minute; tokens are those of a whole
            request.
        pure: Identical requests in flight are sent once; False by default.
        cache: As for `guerdon.judge`; a service is known by its address, ``url``.

    Raises:
        RegistrationError: An option is wrong; the message names it.

    Examples:
        >>> from guerdon import http_reward
        >>> http_reward("http://localhost:9000/rewards", columns=["completion", "answer"], batch_size=32, name="checker")
        <reward function 'checker': http://localhost:9000/rewards, timeout 30 s>
    """
    given = dict(locals())
    name = name_of(name)
    size, wait = batching(name, batch_size, batch_wait)
    sent = _columns(name, columns, many=size is not None)
    kind = ColumnValue if size is None else ColumnValues
    values = {key: kind(Field(column, json=True)) for key, column in sent.items()}
    return build(
        http_reward,
        given,
        {**extra_body(name, body), **values},
        same_answers=False,
        address=("url", ""),
        api="rewards",
        path="" if score is None else non_empty_text(name, "score", score),
        batch_size=size,
        batch_wait=wait,
    )


def _columns(name: str, given: object, *, many: bool) -> dict[str, str]:
    """The columns by the names under which the service gets them."""
    wrong = RegistrationError(
        f"reward function {name!r}: columns={given!r}: expected a list of column names, or a dict from the service's names to column names."
    )
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, Sequence) and not isinstance(given, str):
        pairs = [(_PLURAL.get(column, column) if many else column, column) for column in given]
    else:
        raise wrong
    if not pairs or not all(isinstance(each, str) and each for pair in pairs for each in pair):
        raise wrong
    return dict(pairs)
