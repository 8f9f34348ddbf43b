"""A judge behind an endpoint, asked over a real connection: answers, failures, cache and cost."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.rewards.judge.calls import JudgeCache, JudgeCalls
from rlhf_lab.rewards.judge.options import EndpointReward, Style, TokenLimit, filled, verdict
from rlhf_lab.rewards.judge.scorer import JudgeScorer
from rlhf_lab.runs.folder import metrics
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.stages.relabel import write_relabelled
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.heartbeat import watched
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.conftest import MakeConfig
from tests.support.examples import FACTS, call
from tests.support.judge_server import Asked, Response, longer_wins, said, serving

pytestmark = pytest.mark.usefixtures("costly")

pytest.importorskip("openai", reason="needs pip install 'rlhf-lab[judge]'")

KEY = "sk-a-secret-that-nobody-may-see"
PATIENT = {"timeout_s": 120.0}
Make = Callable[..., JudgeScorer]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def sample(text: str) -> Sample:
    return Sample((5,), (-1.0,), 0, Finish.eos, text)


def group(number: int, *texts: str) -> Group:
    prompt = Prompt(number, (2,), Example(f"row/{number}", f"request {number}", "four"))
    return Group(prompt, tuple(sample(text) for text in texts))


def reference(_: Group) -> Sample:
    return sample("four")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """make(url, option=value) -> a scorer with a cache in the test's folder."""

    def made(url: str, **options: Any) -> JudgeScorer:
        chosen = EndpointReward(base_url=url, model="m", **{**PATIENT, **options})
        calls = JudgeCalls(chosen, chosen.api_key(), JudgeCache(tmp_path / "judge"))
        return JudgeScorer(chosen, calls, reference)

    return made


THREE = [group(0, "five!", "six"), group(1, "four", "longest")]


def test_answers_are_compared_with_the_reference_in_both_orders(make: Make) -> None:
    with serving(longer_wins) as judge:
        scorer = make(judge.url, input_price=0.5, output_price=2.0)
        assert scorer.compares
        assert scorer.score(THREE) == [(1.0, 0.0), (0.5, 1.0)]
    first = judge.server.asked[0]
    assert first.key == f"Bearer {KEY}"
    assert (first.fields["model"], first.fields["temperature"]) == ("m", 0.0)
    assert first.fields["max_tokens"] == 512
    orders = {(a.parts["answer_A"], a.parts["answer_B"]) for a in judge.server.asked}
    assert {("five!", "four"), ("four", "five!")} <= orders
    assert {a.parts["request"] for a in judge.server.asked} == {"request 0", "request 1"}
    # Four pairs in two orders, of which those of two equal answers are one question.
    assert scorer.drain() == {
        "judge_calls": 7,
        "judge_cached": 1,
        "judge_retries": 0,
        "judge_failures": 0,
        "judge_unanswered": 0,
        "judge_cache_damaged": 0,
        "judge_disagreements": 0,
        "judge_ties": 1,
        "judge_input_tokens": 700,
        "judge_output_tokens": 70,
        "judge_microdollars": 350 + 140,
    }
    assert not any(scorer.drain().values())


def test_a_judge_of_positions_says_nothing_and_is_found_out(make: Make) -> None:
    with serving(lambda _: said('{"winner": "A"}')) as judge:
        both = make(judge.url)
        (row,) = both.compare(THREE[:1], [group(0, "four")])
        assert [(v.win, v.agrees) for v in row] == [(0.5, False)] * 2
        counts = both.drain()
        assert (counts["judge_disagreements"], counts["judge_ties"]) == (2, 0)
        one = make(judge.url, both_orders=False)
        (row,) = one.compare(THREE[:1], [group(0, "four")])
        assert [(v.win, v.agrees) for v in row] == [(1.0, None)] * 2, "believed"


def test_half_a_tie_is_three_quarters(make: Make) -> None:
    """The sample wins when it is first, and ties when it is second."""

    def judge(asked: Asked) -> Response:
        return said('{"winner": "A"}' if asked.parts["answer_A"] == "six" else '{"winner": "tie"}')

    with serving(judge) as running:
        scorer = make(running.url)
        assert scorer.score([group(0, "six")]) == [(0.75,)]
        assert scorer.drain()["judge_disagreements"] == 1


def test_a_rating_is_the_number_and_a_win_if_it_is_higher(make: Make) -> None:
    def judge(asked: Asked) -> Response:
        return said(f'Well. {{"rating": {len(asked.parts["answer"])}}}')

    with serving(judge) as running:
        scorer = make(running.url, style=Style.rating)
        assert scorer.score(THREE) == [(5.0, 3.0), (4.0, 7.0)]
        rows = scorer.compare(THREE, [group(0, "four"), group(1, "four")])
        assert [[(v.win, v.agrees) for v in row] for row in rows] == [
            [(1.0, None), (0.0, None)],
            [(0.5, None), (1.0, None)],
        ]
        assert scorer.drain()["judge_ties"] == 1


@pytest.mark.parametrize(
    ("style", "text", "expected"),
    [
        (Style.pairwise, '{"winner": "A"}', 1.0),
        (Style.pairwise, 'So:\n```json\n{"winner": "b", "why": {"x": 1}}\n```', 0.0),
        (Style.pairwise, '{"why": "{", "winner": " Tie"} done', 0.5),
        (Style.pairwise, 'It says {"winner": "A"}, yet {"winner": "B"}', 0.0),
        (Style.pairwise, '{"winner": "C"}', None),
        (Style.pairwise, '{"winner": "A"', None),
        (Style.pairwise, '{"winner": null} {"rating": 3}', None),
        (Style.pairwise, "A", None),
        (Style.pairwise, "{" * 5000 + '{"winner": "A"}', 1.0),
        (Style.pairwise, '{"a":' * 100_000, None),
        (Style.rating, '{"rating": 10}', 10.0),
        (Style.rating, '{"rating": 7.5}', 7.5),
        (Style.rating, '{"rating": 0}', None),
        (Style.rating, '{"rating": 11}', None),
        (Style.rating, '{"rating": NaN}', None),
        (Style.rating, '{"rating": true}', None),
        (Style.rating, '{"rating": "8"}', None),
        (Style.rating, "[8]", None),
    ],
)
def test_an_answer_is_read_or_it_is_none(style: Style, text: str, expected: float | None) -> None:
    assert verdict(style, text) == expected


def test_braces_of_an_answer_fill_no_place() -> None:
    texts = {"prompt": "{second}", "first": "{prompt}", "second": "{x}"}
    assert filled("{prompt} {first} {second} {y}", texts) == "{second} {prompt} {x} {y}"


FAILURES: dict[str, tuple[Response, str]] = {
    "too many": (Response(429, headers={"Retry-After": "0.05"}), "status_429"),
    "broken": (Response(500, "oops"), "status_500"),
    "busy": (Response(503), "status_503"),
    "slow": (said('{"winner": "A"}', sleep=600.0), "timeout"),
    "not json": (Response(body="<html>"), "malformed"),
    "another shape": (Response(body='{"choices": [[]]}'), "malformed"),
    "no choice": (Response(body='{"choices": []}'), "malformed"),
    "deep": (Response(body='{"a":' * 100_000), "malformed"),
    "trickling": (said('{"winner": "A"}', drip=0.05), "timeout"),
    "cut body": (said('{"winner": "A"}', cut=5), "connection"),
    "cut answer": (said('{"winner": "A"}', ending="length"), "cut"),
    "half an answer": (said('{"winner": "'), "unreadable"),
    "no verdict": (said("Both are nice."), "unreadable"),
    "filtered": (said('{"winner": "A"}', ending="content_filter"), "refused"),
    "nothing": (said(None), "refused"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_tried_again_and_counted_by_its_kind(make: Make, name: str) -> None:
    failure, kind = FAILURES[name]

    def judge(asked: Asked) -> Response:
        return longer_wins(asked) if asked.before else failure

    with serving(judge) as running:
        scorer = make(running.url, **({"timeout_s": 3.0} if kind == "timeout" else {}))
        assert scorer.score([group(0, "six")]) == [(0.0,)]
        counts = scorer.drain()
    assert counts["judge_calls"] == 4
    assert counts["judge_failures"] == counts["judge_retries"] == 2
    assert counts[f"judge_failures_{kind}"] == 2
    assert counts["judge_unanswered"] == 0


def test_a_retry_waits_as_long_as_it_is_told(make: Make) -> None:
    times: list[float] = []

    def judge(asked: Asked) -> Response:
        times.append(time.monotonic())
        told = Response(429, headers={"Retry-After": "1.5"})
        return longer_wins(asked) if asked.before else told

    with serving(judge) as running:
        scorer = make(running.url, both_orders=False)
        assert scorer.score([group(0, "six")]) == [(0.0,)]
    assert times[1] - times[0] >= 1.5, "the client's own first pause is 0.5 seconds"


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (Response(429, headers={"Retry-After": "1000000000"}), "status_429"),
        (Response(307, headers={"Location": "/v1/chat/completions"}), "connection"),
    ],
)
def test_pauses_and_redirects_without_end_are_failures(
    make: Make, response: Response, kind: str
) -> None:
    with serving(lambda _: response) as running:
        scorer = make(running.url, both_orders=False, retries=1)
        assert scorer.score([group(0, "six")]) == [()]
        counts = scorer.drain()
    assert counts["judge_unanswered"] == 1
    assert counts["judge_failures"] == counts[f"judge_failures_{kind}"] > 0


PROXY = Response(403, "<html>Forbidden by the site</html>")


def test_loopback_is_asked_without_a_proxy(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda _: PROXY) as proxy, serving(longer_wins) as judge:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:9")
        assert make(judge.url).score([group(0, "six")]) == [(0.0,)]
        assert proxy.num_asked == 0


@pytest.mark.parametrize("variable", ["http_proxy", "ALL_PROXY"])
def test_the_answer_of_a_proxy_is_named_as_one(
    make: Make, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with serving(lambda _: PROXY) as proxy:
        address = proxy.url.removesuffix("/v1").removeprefix("http://")
        monkeypatch.setenv(variable, f"http://me:secret@{address}")
        with pytest.raises(UserError, match=rf"{address}: add judge.test to NO_PROXY") as stopped:
            make("http://judge.test/v1").score([group(0, "six")])
    assert "secret" not in str(stopped.value) and "key_variable" not in str(stopped.value)


def test_a_socks_proxy_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@gate:1080")
    monkeypatch.setattr("rlhf_lab.rewards.judge.proxies.find_spec", lambda _: None)
    EndpointReward(base_url="http://[::1]:8000/v1", model="m").require_usable("judge")
    with pytest.raises(UserError, match=r"judge.base_url=.*socks5://gate:1080.*socksio") as refused:
        EndpointReward(model="m").require_usable("judge")
    assert "secret" not in str(refused.value)


def test_a_group_without_all_of_its_answers_has_no_score(make: Make) -> None:
    def judge(asked: Asked) -> Response:
        is_bad = asked.parts["request"] == "request 0" and "six" in asked.question
        return Response(500) if is_bad else longer_wins(asked)

    with serving(judge) as running:
        scorer = make(running.url, retries=1)
        assert scorer.score(THREE) == [(), (0.5, 1.0)]
        counts = scorer.drain()
    # Two orders of one sample, two requests each.
    assert counts["judge_failures_status_500"] == 2 * 2
    assert counts["judge_unanswered"] == 2
    assert counts["judge_calls"] == 2 * 2 + 5
    assert counts["judge_ties"] == 1


def test_nobody_there_is_a_failure_too(make: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        scorer = make(url, retries=1)
        assert scorer.score(THREE) == [(), ()]
        assert scorer.drain()["judge_failures_connection"] == 14


@pytest.mark.parametrize(
    ("response", "remedy"),
    [
        (Response(401, f"wrong key {KEY}"), "OPENAI_API_KEY (reward.key_variable)"),
        (Response(403, f"{KEY} may not"), "OPENAI_API_KEY (reward.key_variable)"),
        (Response(404, f"no model m for {KEY}"), "'no model m for ***': correct reward.base_url"),
        (Response(400, f"max_tokens? {KEY}"), "'max_tokens? ***': correct reward.model"),
        (Response(429, '{"code": "insufficient_quota"}'), "no credit left"),
    ],
)
def test_what_no_retry_can_mend_stops_at_once(make: Make, response: Response, remedy: str) -> None:
    with serving(lambda _: response) as judge:
        with pytest.raises(UserError) as stopped:
            make(judge.url, concurrency=1).score(THREE)
        assert judge.num_asked == 1
    told = str(stopped.value)
    assert judge.url in told and f"answered {response.status}" in told and remedy in told
    assert KEY not in told
    assert stopped.value.__cause__ is None and stopped.value.__suppress_context__


def test_nothing_is_asked_twice(make: Make, tmp_path: Path) -> None:
    with serving(longer_wins) as judge:
        first = make(judge.url).score(THREE)
        assert judge.num_asked == 7
        again = make(judge.url)
        assert again.score(THREE) == first
        assert judge.num_asked == 7
        counts = again.drain()
        assert (counts["judge_calls"], counts["judge_cached"]) == (0, 8)
        assert counts["judge_ties"] == 1, "what was judged does not depend on the cache"
        others: list[dict[str, Any]] = [
            {"model": "o"},
            {"temperature": 1.0},
            {"system": "Be kind."},
        ]
        for other in others:
            before = judge.num_asked
            given: dict[str, Any] = {"model": "m", **PATIENT, **other}
            options = EndpointReward(base_url=judge.url, **given)
            calls = JudgeCalls(options, "", JudgeCache(tmp_path / "judge"))
            assert JudgeScorer(options, calls, reference).score(THREE) == first
            assert judge.num_asked == before + 7, other
    # The judge is gone, and so is the address: the cache does not know it.
    assert make("http://127.0.0.1:9/v1", key_variable="").score(THREE) == first


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("damage", ["cut", "changed", "another's", "unreadable", "not UTF-8"])
def test_a_damaged_entry_is_ignored_counted_and_written_anew(
    make: Make, tmp_path: Path, damage: str
) -> None:
    with serving(longer_wins) as judge:
        first = make(judge.url).score(THREE)
        entries = files(tmp_path / "judge")
        assert len(entries) == 7
        victim, whole = entries[0], entries[0].read_bytes()
        if damage == "cut":
            victim.write_bytes(whole[:-10])
        elif damage == "changed":
            winner = whole.replace(b"winner", b"w1nner")
            assert winner != whole
            victim.write_bytes(winner)
        elif damage == "another's":
            victim.write_bytes(entries[1].read_bytes())
        elif damage == "not UTF-8":
            victim.write_bytes(b"\xff\xfe")
        else:
            JudgeCache(tmp_path / "judge").forget(victim.stem)
            JudgeCache(tmp_path / "judge").settle(victim.stem, "I do not know.")
        scorer = make(judge.url)
        assert scorer.score(THREE) == first
        counts = scorer.drain()
        assert (counts["judge_calls"], counts["judge_cache_damaged"]) == (1, 1)
        assert judge.num_asked == 8
    assert victim.read_bytes() == whole
    assert files(tmp_path / "judge") == entries, "no drafts stay"


def test_scorers_that_share_a_folder_agree_on_one_answer(make: Make, tmp_path: Path) -> None:
    """Of a judge who says something else every time, the first answer kept is everybody's."""
    turn = threading.Lock()
    wins = iter(["A", "B", "tie"] * 1000)

    def fickle(_: Asked) -> Response:
        with turn:
            return said(json.dumps({"winner": next(wins)}), sleep=0.01)

    groups = [group(number, "five!", "six") for number in range(8)]
    with serving(fickle) as judge:
        scorers = [make(judge.url) for _ in range(4)]
        threads = [threading.Thread(target=s.score, args=(groups,)) for s in scorers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        settled = make(judge.url)
        final = settled.score(groups)
        assert settled.drain()["judge_calls"] == 0
        assert all(scorer.score(groups) == final for scorer in scorers)
    assert len(files(tmp_path / "judge")) == 32
    cache = JudgeCache(tmp_path / "other")
    assert (cache.settle("ab" * 32, "first"), cache.settle("ab" * 32, "second")) == ("first",) * 2


def test_no_more_requests_at_once_than_allowed(make: Make) -> None:
    groups = [group(number, "five!", "six") for number in range(10)]
    first_three = threading.Barrier(3)

    def slow(asked: Asked) -> Response:
        if asked.number < 3:
            first_three.wait(120)
        return said('{"winner": "tie"}', sleep=0.03)

    with serving(slow) as judge:
        make(judge.url, concurrency=3).score(groups)
        assert judge.num_asked == 40
        assert judge.server.most_at_once == 3


def test_the_order_of_arrival_changes_nothing(make: Make, tmp_path: Path) -> None:
    """Late answers to early questions, and the other way round."""

    def shuffled(asked: Asked) -> Response:
        answer = longer_wins(asked)
        return Response(body=answer.body, sleep=stable_hash(asked.question) % 7 / 100)

    groups = [group(number, "six", "five!" * number, "four") for number in range(6)]
    with serving(shuffled) as judge:
        quick = make(judge.url, concurrency=24).score(groups)
    for path in files(tmp_path / "judge"):
        path.unlink()
    with serving(longer_wins) as judge:
        assert make(judge.url, concurrency=1).score(groups) == quick


def test_somebody_who_watches_sees_that_a_slow_judge_is_no_hang(make: Make) -> None:
    beats = 0
    seen = threading.Event()

    def beat() -> None:
        nonlocal beats
        beats += 1
        if beats == 2:
            seen.set()

    def slow(_: Asked) -> Response:
        assert seen.wait(120), "nobody would know that the judge is awaited"
        return said('{"winner": "tie"}')

    with serving(slow) as judge, watched(beat):
        assert make(judge.url).score([group(0, "six")]) == [(0.5,)]


def test_no_key_is_sent_where_none_is_asked_for(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with serving(longer_wins) as judge:
        make(judge.url, key_variable="").score(THREE)
        assert {asked.key for asked in judge.server.asked} == {None}


def test_a_request_has_the_fields_that_were_asked_for(make: Make) -> None:
    with serving(lambda _: said('{"winner": "tie"}')) as judge:
        scorer = make(
            judge.url,
            system="Be kind.",
            template="{prompt}|{first}|{second}",
            token_limit=TokenLimit.max_completion_tokens,
            max_tokens=9,
            extra='{"temperature": null, "seed": 7, "response_format": {"type": "json_object"}}',
        )
        scorer.score([group(0, "six")])
        fields = judge.server.asked[0].fields
    first, second = fields.pop("messages")
    assert first == {"role": "system", "content": "Be kind."}
    assert second["content"] in ("request 0|six|four", "request 0|four|six")
    assert fields == {
        "model": "m",
        "max_completion_tokens": 9,
        "seed": 7,
        "response_format": {"type": "json_object"},
    }


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"base_url": "localhost:8000"}, r"reward.base_url=localhost:8000: pass an address"),
        ({"base_url": "https://me:pass@host/v1"}, r"host has a user or a query in it"),
        ({"concurrency": 0}, r"reward.concurrency=0 is out of range: choose 1 "),
        ({"timeout_s": 0.0}, r"reward.timeout_s=0.0 is out of range: choose above 0"),
        ({"template": "{prompt} {first}"}, r"must hold \{prompt\} and \{first\} and \{second\}"),
        ({"template": "{first}", "style": Style.rating}, r"must hold \{prompt\} and \{answer\}"),
        ({"extra": "{"}, r"reward.extra='\{' is not JSON"),
        ({"extra": "[1]"}, r"is not a JSON object"),
        ({"extra": '{"stream": true}'}, r"reward.extra sets 'stream'"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as refused:
        EndpointReward(**options)
    assert "pass@" not in str(refused.value)


@pytest.mark.parametrize("where", ["reward", "reward@judge"])
def test_a_judge_without_name_key_or_package_is_refused_before_the_first_step(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    key = where.rpartition("@")[2]
    check(make_config(f"{where}=endpoint", f"{key}.model=m"))
    with pytest.raises(UserError, match=rf"{key}.model='': name the language model"):
        check(make_config(f"{where}=endpoint"))
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    with pytest.raises(UserError, match="blanks, line ends") as refused:
        check(make_config(f"{where}=endpoint", f"{key}.model=m"))
    assert KEY not in str(refused.value)
    monkeypatch.delenv("OPENAI_API_KEY")
    check(make_config(f"{where}=endpoint", f"{key}.model=m", f"{key}.key_variable=''"))
    with pytest.raises(UserError, match=r"export OPENAI_API_KEY=<key>"):
        check(make_config(f"{where}=endpoint", f"{key}.model=m"))
    monkeypatch.setattr("rlhf_lab.tasks.optional_packages.find_spec", lambda _: None)
    with pytest.raises(UserError, match=rf"{key}=endpoint needs .* 'rlhf-lab\[judge\]'"):
        check(make_config(f"{where}=endpoint", f"{key}.model=m"))


# A run of sixteen prompts whose judge fails for some of them, whatever is tried.
def patchy(asked: Asked) -> Response:
    is_bad = stable_hash(asked.parts["request"]) % 3 == 0
    return Response(500) if is_bad else longer_wins(asked)


RUN = (
    "task=arithmetic",
    "algo=rloo",
    "eval=none",
    "reward=endpoint",
    "reward.model=m",
    "reward.retries=1",
    "run.group_size=2",
    "run.updates_per_round=2",
)
MODES = {"sync": ["mode=lagged"], "process": ["mode=async", "mode.executor=process"]}


def train(config: Config) -> Path:
    return lifecycle.train(config, Console(quiet=False), FACTS)


def exact(folder: Path) -> list[dict[str, Any]]:
    """What a run learned; judge counts say what was paid for, which a cache changes."""
    paid = ("calls", "cached", "input", "output", "microdollars")
    beside = ("seconds/", "timing/", *(f"total/judge_{name}" for name in paid))
    return [{k: v for k, v in row.items() if not k.startswith(beside)} for row in metrics(folder)]


# Three runs: in turns, beside a generator's process, and again from what the judge had said.
def test_a_run_learns_from_a_judge_and_drops_what_it_cannot_judge(
    make_config: MakeConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = []
    with serving(patchy) as judge:
        for name, mode in MODES.items():
            kept = f"reward.cache={tmp_path}/judge-{name}"
            folder = train(make_config(*RUN, f"reward.base_url={judge.url}", kept, *mode))
            rows.append(exact(folder))
            last = metrics(folder)[-1]
            assert last["total/updates"] == 4
            assert 0 < last["total/unscored_groups"] < 16
            assert last["total/unscored_tokens"] > 0
            assert last["total/judge_failures_status_500"] == last["total/judge_failures"] > 0
            assert last["total/judge_calls"] > last["total/judge_failures"]
            assert 0 <= last["reward/mean"] <= 1
        before = Counter(asked.parts["request"] for asked in judge.server.asked)
        again = train(make_config(*RUN, f"reward.base_url={judge.url}", kept, "mode=lagged"))
        after = Counter(asked.parts["request"] for asked in judge.server.asked)
        new = after - before
        assert new and all(stable_hash(request) % 3 == 0 for request in new), "only failures"
    assert rows[0] == rows[1] == exact(again)
    out, err = capfd.readouterr()
    assert KEY not in out + err
    for path in files(tmp_path):
        assert KEY.encode() not in path.read_bytes(), path


def test_a_round_that_nobody_could_judge_says_why(make_config: MakeConfig) -> None:
    with (
        serving(lambda _: Response(503)) as judge,
        pytest.raises(RuntimeError, match=r"could be scored.*judge_failures_status_503=\d+"),
    ):
        train(make_config(*RUN, f"reward.base_url={judge.url}", "reward.retries=0"))


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_key_stops_a_run_in_every_mode_with_the_remedy(
    make_config: MakeConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str], mode: str
) -> None:
    with (
        serving(lambda _: Response(401, f"bad {KEY}")) as judge,
        pytest.raises(UserError, match=r"answered 401: put a key .* OPENAI_API_KEY"),
    ):
        train(make_config(*RUN, f"reward.base_url={judge.url}", *MODES[mode]))
    out, err = capfd.readouterr()
    assert KEY not in out + err
    for path in files(tmp_path / "runs"):
        assert KEY.encode() not in path.read_bytes(), path


def test_the_command_line_tells_it_in_one_line(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ("debug=tiny", f"output.cache={cache}", f"output.root={tmp_path}", "output.quiet=true")
    with serving(lambda _: Response(404, "no such model")) as judge:
        where = f"reward.base_url={judge.url}"
        assert call("train", *base, *RUN, where, monkeypatch=monkeypatch) == 2
    *_, told = capsys.readouterr().err.strip().splitlines()
    assert told.startswith(f"rlhf-lab train: reward.base_url={judge.url} with reward.model=m: the")
    assert "answered 404 'no such model': correct reward.base_url" in told


def test_labels_by_a_judge_leave_out_the_pairs_that_it_could_not_score(
    make_config: MakeConfig,
) -> None:
    from rlhf_lab.experiment.artifacts.labels import read_pairs
    from rlhf_lab.experiment.artifacts.prepare import Artifacts

    with serving(patchy) as judge:
        config = make_config(
            "reward@judge=endpoint",
            "judge.model=m",
            f"judge.base_url={judge.url}",
            "judge.retries=0",
            "task=arithmetic",
            "labels.pairs=32",
            "labels.held_out_pairs=8",
        )
        product = Artifacts(config, Console(quiet=True)).labels()
    share = product.metrics["train_unscored"]
    assert 0 < share < 1
    pairs = read_pairs(product.folder / "train.jsonl")
    assert len(pairs) == round(32 * (1 - share) * (1 - product.metrics["train_ties"]))
    assert all(row["chosen_gold"] > row["rejected_gold"] for row in pairs)


def test_pairs_are_put_in_the_order_of_a_judge_who_sees_both(make: Make, tmp_path: Path) -> None:
    rows = [
        {"prompt": "Q", "chosen": "long answer", "rejected": "short"},
        {"prompt": "Q", "chosen": "no", "rejected": "maybe so"},
        {"prompt": "Q", "chosen": "one", "rejected": "two"},
    ]
    with serving(longer_wins) as judge, Console(quiet=True).stage("relabel", total=3) as bar:
        path = tmp_path / "pairs.jsonl"
        measured = write_relabelled(path, rows, make(judge.url), None, {}, bar)
        # Pairs are asked about side by side: the first to arrive may be any of them.
        shown = [{ask.parts["answer_A"], ask.parts["answer_B"]} for ask in judge.server.asked]
    assert {"long answer", "short"} in shown
    assert (measured["agreement"], measured["swapped"], measured["ties"]) == (1 / 3,) * 3
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["chosen"] for row in written] == ["long answer", "maybe so", "one"]
    assert [(row["chosen_gold"], row["rejected_gold"]) for row in written] == [
        (1.0, 0.0),
        (1.0, 0.0),
        (0.5, 0.5),
    ]
