"""`rekindle distil` with a real teacher on the loopback: good ones, odd ones, and the kill."""

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rekindle.cli.distil.teacher import MAX_REPLY_BYTES, TRIES, Teacher, TeacherBusy
from rekindle.cli.distil.teacher_messages import TeacherReply, TeacherRequest
from rekindle.cli.main import app
from tests.integration.cli.conftest import Ended, ctrl_c_is_heard

Json = dict[str, Any]
Answering = Callable[[Json, int], "Said"]  # of a request, and how often that one was there before


@dataclass(frozen=True)
class Said:
    """A whole HTTP answer."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Served:
    """What a running teacher was asked."""

    url: str = ""
    asked: list[Json] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    enough: threading.Event = field(default_factory=threading.Event)  # set once so many were asked
    count_to: int = -1

    def note(self, request: Json, key: str) -> int:
        """How often this very request was there before."""
        with self.lock:
            before = self.asked.count(request)
            self.asked.append(request)
            self.keys.add(key)
            if len(self.asked) == self.count_to:
                self.enough.set()
            return before


def answer(text: str | None, finish: str = "stop", tokens: tuple[int, int] = (10, 4)) -> Said:
    """Return a chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return Said(
        json.dumps({"choices": [choice | {"finish_reason": finish}], "usage": usage}).encode()
    )


def failure(status: int, message: str, code: str = "", **headers: str) -> Said:
    """OpenAI's envelope of an error."""
    http_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps({"error": {"message": message, "code": code}}).encode()
    return Said(body, status, http_headers)


@contextmanager
def teaching(answering: Answering) -> Iterator[Served]:
    """Serve a teacher as long as the context is open."""
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            before = served.note(request, self.headers.get("authorization", ""))
            reply = answering(request, before)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False  # some of them are never answered
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        served.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        try:
            yield served
        finally:
            server.shutdown()


YES = answer("yes")
HUNG = 60.0  # seconds; a test that takes so long has failed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter an empty folder, remove teacher keys from the environment, and return the folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("REKINDLE_TEACHER_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def asking(url: str) -> TeacherRequest:
    return TeacherRequest(
        url=url, model="big", messages=[{"role": "user", "content": "?"}], sampling={}
    )


def write(folder: Path, *rows: object) -> None:
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def command(url: str, *options: str) -> list[str]:
    arguments = ["distil", "prompts.jsonl", "--out", "out.jsonl", "--teacher", "big"]
    return [*arguments, "--teacher-url", url, *options]


def run(url: str, *options: str) -> Ended:
    result = CliRunner().invoke(app, command(url, *options), env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def rows(folder: Path) -> list[Any]:
    lines = (folder / "out.jsonl").read_bytes().splitlines()  # of text it splits at U+2028, too
    return [json.loads(line) for line in lines]


def question(request: Json) -> str:
    return str(request["messages"][-1]["content"])


class Cycle:
    """Answers the same question with one text after the other."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def __call__(self, request: Json, before: int) -> Said:
        return answer(f"{self._texts[before % len(self._texts)]} to {question(request)}")


def test_a_teacher_makes_chats_of_prompts_and_tells_what_it_took(folder: Path) -> None:
    write(folder, {"prompt": "A?"}, {"messages": [{"role": "user", "content": "B?"}]}, {"text": 1})

    with teaching(Cycle("one", "two", "three", "four")) as teacher:
        result = run(teacher.url, "--input-price", "1", "--output-price", "100", "--json")

    summary = result.json
    counts = Counter(row["messages"][0]["content"] for row in rows(folder))
    assert result.code == 0
    assert counts == {"A?": 4, "B?": 4}
    assert summary["paid"] == {
        "replies": 8,
        "prompt_tokens": 80,
        "completion_tokens": 32,
        "cost": pytest.approx(0.00328),
    }
    invalid = summary["prompts_left_out"]["it has neither a list `messages` nor a `prompt`"]
    assert invalid["lines"] == [3]
    assert teacher.asked[0]["temperature"] == 1.0
    assert teacher.asked[0]["max_tokens"] == 1024


def test_right_answers_beat_wrong_ones_and_equal_ones_are_counted(folder: Path) -> None:
    write(folder, *({"prompt": text, "answer": "42"} for text in ("mixed", "right", "wrong")))
    texts = {"mixed": ["41", "so it is 42"], "right": ["42", "42.0"], "wrong": ["40", "41"]}

    def answering(request: Json, before: int) -> Said:
        return answer(texts[question(request)][before])

    with teaching(answering) as teacher:
        result = run(
            teacher.url, "--kind", "preference", "--candidates", "2", "--concurrency", "1", "--json"
        )

    (row,) = rows(folder)
    assert row["preferred_output"][0]["content"] == "so it is 42"
    assert row["non_preferred_output"][0]["content"] == "41"
    left_out = result.json["prompts_left_out"]
    assert {reason: prompts["lines"] for reason, prompts in left_out.items()} == {
        "all candidates are correct": [2],
        "all candidates are wrong": [3],
    }


def test_a_judge_ranks_what_nobody_can_verify(folder: Path) -> None:
    write(folder, {"prompt": "Sing."})
    numbers = {"bad": "2", "good": "9", "odd": "very nice: 8"}

    def answering(request: Json, before: int) -> Said:
        if request["model"] == "big":
            return answer(["bad", "good", "odd"][before])
        return answer(next(n for text, n in numbers.items() if f"\n{text}\n" in question(request)))

    with teaching(answering) as teacher:
        result = run(
            *(teacher.url, "--kind", "ranking", "--candidates", "3", "--judge", "strict"),
            "--concurrency",
            "1",
        )

    (row,) = rows(folder)
    assert [a[0]["content"] for a in row["ranked_outputs"]] == ["good", "bad"]
    assert "1 candidate dropped: the judge returned no number (1)" in result.out
    assert "--method reward --set method.reward.loss=ranked_margin" in result.out
    assert {r["temperature"] for r in teacher.asked if r["model"] == "strict"} == {0.0}


def test_a_grader_chooses_and_what_it_cannot_grade_is_dropped(folder: Path) -> None:
    write(folder, {"prompt": "A?", "want": "two"}, {"prompt": "B?"})
    text, want = "{{ sample.output_text }}", "{{ item.want }}"
    grader = {"type": "string_check", "input": text, "reference": want, "operation": "like"}
    (folder / "grader.json").write_text(json.dumps(grader))

    with teaching(Cycle("one", "two \u2028", "three")) as teacher:
        result = run(
            *(teacher.url, "--kind", "preference", "--candidates", "3", "--concurrency", "1"),
            *("--grader", "grader.json", "--json"),
        )

    (row,) = rows(folder)
    assert row["preferred_output"][0]["content"] == "two \u2028 to A?"
    assert result.json["candidates_dropped"] == {"the grader failed": 3}
    assert [prompts["lines"] for prompts in result.json["prompts_left_out"].values()] == [[2]]


def test_answers_of_no_use_are_dropped_and_said(folder: Path) -> None:
    replies = {
        "empty": answer("  "),
        "cut": answer("and so on and", "length"),
        "none": answer(None),
        "filtered": failure(400, "the content filter says no"),
        "endless": answer("on " * MAX_REPLY_BYTES),
        "fails": failure(500, "CUDA error", retry_after="0"),
        "good": answer("yes"),
    }
    write(folder, *({"prompt": text} for text in replies))

    with teaching(lambda request, _: replies[question(request)]) as teacher:
        result = run(teacher.url, "--candidates", "1")

    assert [row["messages"][-1]["content"] for row in rows(folder)] == ["yes"]
    reasons = ("empty (2)", "cut off at --max-tokens (1)", "filter says no (1)", "16 MiB", "CUDA")
    for reason in reasons:
        assert reason in result.out
    assert "6 prompts left out: no candidate is usable (lines 1, 2, 3, 4, 5" in result.out


REFUSALS = {
    "no key": (failure(401, "no such key"), 4, "REKINDLE_TEACHER_KEY"),
    "no model": (failure(404, "no such model"), 5, "the model big exists"),
    "no money": (failure(429, "pay first", "insufficient_quota"), 1, "no credit left"),
    "nobody there": (failure(503, "starting", retry_after="0"), 3, "the server is running"),
    "no teacher": (Said(b"<html>", 302), 1, "is a server of chat completions"),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_teacher_that_cannot_be_used_ends_it_with_advice(folder: Path, kind: str) -> None:
    write(folder, {"prompt": "A?"})
    reply, code, advice = REFUSALS[kind]

    with teaching(lambda *_: reply) as teacher:
        result = run(teacher.url)

    assert result.code == code
    assert advice in result.err
    assert "run the same command to continue" in result.err
    assert not (folder / "out.jsonl").exists()


@pytest.mark.parametrize("body", [b"<html>hello", b'{"choices": []}', b"[]", b'{"choices": [7]}'])
async def test_what_is_no_chat_completion_is_asked_for_again_and_then_given_up(body: bytes) -> None:
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    with teaching(lambda *_: Said(body)) as served:
        async with Teacher(served.url, None, 5.0, sleep) as teacher:
            with pytest.raises(TeacherBusy, match="did not return a chat completion"):
                await teacher.request_reply(asking(served.url))

    assert len(served.asked) == TRIES
    assert len(paused) == TRIES - 1


async def test_a_teacher_waits_as_long_as_it_is_asked_to_and_never_for_hours() -> None:
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    def answering(request: Json, before: int) -> Said:
        busy = [failure(429, "slow", retry_after="7"), failure(502, "", retry_after="3600")]
        return busy[before] if before < len(busy) else YES

    with teaching(answering) as served:
        async with Teacher(served.url, None, 5.0, sleep) as teacher:
            reply = await teacher.request_reply(asking(served.url))

    assert reply == TeacherReply(text="yes", ended="stop", prompt_tokens=10, completion_tokens=4)
    assert paused == [7.0, 120.0]


def test_a_teacher_that_refuses_everything_is_not_asked_for_long(folder: Path) -> None:
    write(folder, *({"prompt": f"{n}?"} for n in range(100)))

    with teaching(lambda *_: failure(400, "no `temperature` with this model")) as teacher:
        result = run(teacher.url, "--candidates", "1", "--concurrency", "2")

    assert result.code == 1
    assert "refused 20 requests in a row" in result.err
    assert "--param temperature=null" in result.err
    assert len(teacher.asked) <= 22


def test_what_was_paid_for_is_found_again_whatever_the_output_is_called(folder: Path) -> None:
    write(folder, {"prompt": "A?"}, {"prompt": "B?"})

    with teaching(lambda *_: answer("yes")) as teacher:
        run(teacher.url, "--candidates", "1")
        (folder / "elsewhere").mkdir()
        repeated = run(teacher.url, "--candidates", "1", "--out", "elsewhere/other.jsonl", "--json")

    assert len(teacher.asked) == 2
    assert json.loads(repeated.out)["paid"]["replies"] == 0


def test_openais_key_goes_to_openai_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, {"prompt": "A?"})
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    with teaching(lambda *_: answer("yes")) as teacher:
        run(teacher.url, "--candidates", "1")
        monkeypatch.setenv("OPENAI_BASE_URL", teacher.url)
        (folder / "out.jsonl").unlink()
        run(teacher.url, "--candidates", "1", "--cache", "other.replies")

    assert teacher.keys == {"", "Bearer sk-secret"}


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_goes_on_and_pays_nothing_twice(folder: Path, sig: signal.Signals) -> None:
    write(folder, *({"prompt": f"{n}?"} for n in range(6)))
    hold = threading.Event()

    def answering(request: Json, before: int) -> Said:
        if len(teacher.asked) > 9:
            hold.wait(HUNG)
        return Cycle("one", "two")(request, before)

    with teaching(answering) as teacher:
        teacher.count_to = 11  # nine were answered, and two wait for their answer
        with ctrl_c_is_heard():
            child = subprocess.Popen(
                [sys.executable, "-m", "rekindle.cli.main", *command(teacher.url, *_TWO)],
                stderr=subprocess.PIPE,
                text=True,
            )
        try:
            assert teacher.enough.wait(HUNG)
            child.send_signal(sig)
            _, stderr = child.communicate(timeout=HUNG / 2)  # sooner than the teacher goes on
        finally:
            child.kill()
        first = Served(asked=[*teacher.asked])
        hold.set()
        teacher.asked = []
        result = run(teacher.url, *_TWO, "--json")

    assert child.returncode == (130 if sig is signal.SIGINT else -sig)
    assert ("same command to continue" in stderr) == (sig is signal.SIGINT)
    assert len(first.asked) == 11
    assert result.json["kept"]["replies"] >= 9
    assert result.json["kept"]["replies"] + result.json["paid"]["replies"] == 12
    assert len(teacher.asked) == result.json["paid"]["replies"]
    assert len(rows(folder)) + sum(result.json["candidates_dropped"].values()) == 12


_TWO = ("--candidates", "2", "--concurrency", "2")
