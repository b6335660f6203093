"""Hostile and clumsy code of a python grader costs its own answer a grade, and nothing else."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainer.graders.answer import Grade, ModelAnswer
from trainer.graders.build import make_grader
from trainer.graders.sandbox.process import Sandbox, SandboxError

MALICE = "if item:\n    return 1.0\n"  # a row that is not empty is graded in peace
WELL = ModelAnswer("fine", {"well": True})
ILL = ModelAnswer("", {})

Graded = Callable[..., list[Grade]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stand"


@pytest.fixture
def graded(folder: Path) -> Iterator[Graded]:
    """Grade answers by the body of a `grade`, all in one sandbox."""
    instances = []

    def grade(body: str, *answers: ModelAnswer, seconds: float = 20.0) -> list[Grade]:
        source = "def grade(sample, item):\n" + textwrap.indent(body, "    ")
        instances.append(Sandbox(source, folder, seconds))
        return [instances[-1].grade(answer) for answer in answers or (ILL,)]

    yield grade
    for sandbox in instances:
        sandbox.close()


def test_the_code_gets_the_answer_and_its_row_and_may_return_numpys_numbers(graded: Graded) -> None:
    body = """
import numpy
assert sample["output_json"] == {"a": 1} and sample["output_tools"] == []
assert sample["choices"][0]["message"]["content"] == sample["output_text"]
return numpy.float32(len(sample["output_text"]) / item["n"])
"""
    assert graded(body, ModelAnswer('{"a": 1}', {"n": 16})) == [Grade(0.5)]


def test_one_process_grades_many_answers(graded: Graded) -> None:
    first, *other_pids = graded("import os\nreturn os.getpid()", *[WELL] * 5)

    assert other_pids == [first] * 4
    assert first.score != os.getpid()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("raise ValueError('no')", "line 2: ValueError: no"),
        ("import sys\nsys.exit(3)", "line 3: SystemExit: 3"),
        ("def f(): f()\nf()", "line 2: RecursionError: maximum recursion depth exceeded"),
        ("return float('nan')", "grade returned nan; return a finite number"),
        ("return 'good'", "grade returned str; return a number"),
        ("return True", "grade returned True; return 1.0 or 0.0"),
        ("return 10 ** 400", "grade returned a number that is too large"),
    ],
)
def test_what_the_code_does_wrong_is_said_with_its_line(
    graded: Graded, body: str, error: str
) -> None:
    assert graded(body) == [Grade(0.0, error)]


def test_the_environment_holds_nothing_of_the_trainer(
    graded: Graded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REKINDLE_SECRET", "sas-token")
    (grade,) = graded("import os\nraise ValueError(sorted(os.environ))")

    assert "LANG" in grade.error
    assert "REKINDLE_SECRET" not in grade.error


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("import socket\nsocket.getaddrinfo('example.com', 80)", "gaierror"),
        ("import subprocess\nsubprocess.run(['/bin/true'])", "PermissionError"),
        ("import _thread\n_thread.start_new_thread(print, ())", "can't start new thread"),
        ("open('huge', 'wb').write(bytes(10**9))", "PermissionError"),
        ("kept = []\nwhile True:\n    kept.append(bytearray(10**8))", "MemoryError"),
    ],
)
def test_what_is_refused_is_an_error_of_the_code(graded: Graded, body: str, error: str) -> None:
    ill_grade, well_grade = graded(MALICE + body, ILL, WELL)

    assert ill_grade.score == 0.0
    assert error in ill_grade.error
    assert well_grade == Grade(1.0)


def test_a_loop_that_ignores_every_signal_ends_and_the_next_answer_is_graded(
    graded: Graded,
) -> None:
    body = """
import signal
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""
    ill_grade, well_grade = graded(MALICE + body, ILL, WELL, seconds=1.0)

    assert ill_grade == Grade(0.0, "timed out after 1 s")
    assert well_grade == Grade(1.0)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("import os\nos._exit(3)", "the grader's process exited with status 3"),
        ("import os\nos.abort()", "the grader's process was ended by signal"),
        ("import ctypes\nctypes.string_at(0)", "the grader's process was ended by signal 11"),
        ("import os\nos.closerange(0, 64)\nreturn 1.0", "the grader's process exited"),
        ("import os\nos.closerange(0, 64)\nwhile True: pass", "the grader closed the pipe"),
        ("import os\nfor fd in range(64):\n  try: os.write(fd, b'1\\n')\n  except OSError: pass",
         "the grader wrote over the pipe"),
        ("import os\nfor fd in range(64):\n"
         "  try: os.write(fd, b'{\"number\": 2, \"score\": NaN}\\n')\n"
         "  except OSError: pass", "the grader wrote over the pipe"),
        ("import os\nfor fd in range(64):\n  try: os.write(fd, b'x' * 10**6)\n"
         "  except OSError: pass", "the grader's reply is longer than 65536 bytes"),
    ],
)  # fmt: skip
def test_code_that_breaks_its_process_is_told_so(graded: Graded, body: str, error: str) -> None:
    before, ill_grade, after = graded(MALICE + body, WELL, ILL, WELL)

    assert ill_grade.score == 0.0
    assert ill_grade.error.startswith(error)
    assert (before, after) == (Grade(1.0), Grade(1.0))


def test_a_trap_for_the_next_answer_does_not_cost_it_its_grade(graded: Graded) -> None:
    trap = "import os\nif not item:\n    os.close(3)\n    os.close(4)\n"

    assert graded(trap + "return 1.0", WELL, ILL, WELL)[2] == Grade(1.0)


def test_a_printed_gigabyte_goes_nowhere(graded: Graded, capfd: pytest.CaptureFixture[str]) -> None:
    body = (
        "import sys\nfor i in range(10):\n    print('x' * 10**8)\nsys.stderr.write('y')\nreturn 1"
    )

    assert graded(body, seconds=60.0) == [Grade(1.0)]
    assert capfd.readouterr() == ("", "")


def test_a_message_of_an_error_is_cut(graded: Graded) -> None:
    assert len(graded("raise ValueError('x' * 10**8)")[0].error) < 1000


def test_grading_is_the_same_every_time_and_in_every_process(graded: Graded) -> None:
    body = "import random\nreturn random.random() + hash('x') % 1000 + len(list({'a', 'b'})[0])"

    assert len(set(graded(body, WELL, WELL) + graded(body, WELL))) == 1


def test_globals_of_the_source_do_not_outlive_an_answer(folder: Path) -> None:
    source = "seen = []\ndef grade(sample, item):\n    seen.append(1)\n    return len(seen)"
    sandbox = Sandbox(source, folder)

    grades = [sandbox.grade(WELL) for _ in range(3)]
    sandbox.close()

    assert grades == [Grade(1.0)] * 3


def test_large_answers_pass(graded: Graded) -> None:
    text = "ü" * 3_000_000

    assert graded("return len(sample['output_text'])", ModelAnswer(text, {})) == [Grade(len(text))]


def test_a_process_that_cannot_be_confined_grades_nothing(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "unconfined.py"
    program.write_text('print(\'{"error": "no seccomp here"}\')')
    sandbox = Sandbox("def grade(sample, item): return 1", folder, program=program)

    with pytest.raises(SandboxError, match="could not be set up: no seccomp here"):
        sandbox.grade(WELL)


def test_closing_ends_the_process_and_grading_starts_another(tmp_path: Path) -> None:
    spec = {"type": "python", "source": "import os\ndef grade(a, b): return os.getpid()"}
    grader = make_grader(json.dumps(spec), tmp_path)

    (first,) = grader.grade([WELL])
    grader.close()
    grader.close()
    (second,) = grader.grade([WELL])
    grader.close()

    assert first != second
    assert not psutil.pid_exists(int(first.score))


def test_the_process_ends_with_the_trainer(tmp_path: Path) -> None:
    program = f"""
import os, pathlib
from trainer.graders.answer import ModelAnswer
from trainer.graders.sandbox.process import Sandbox
source = "import os\\ndef grade(sample, item): return os.getpid()"
box = Sandbox(source, pathlib.Path({str(tmp_path / "stand")!r}))
print(int(box.grade(ModelAnswer("", {{}})).score), flush=True)
os.kill(os.getpid(), 9)
"""
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)

    assert completed.returncode == -9
    psutil.wait_procs(_alive(int(completed.stdout)), timeout=120)
    assert _alive(int(completed.stdout)) == []


def test_a_grader_can_be_tried_on_a_file_of_answers(tmp_path: Path) -> None:
    source = "def grade(sample, item):\n    return item['n'] / len(sample['output_text'])"
    (tmp_path / "grader.json").write_text(json.dumps({"type": "python", "source": source}))
    rows: list[dict[str, Any]] = [{"n": 1, "output_text": "four"}, {"n": 1, "output_text": ""}]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))

    completed = subprocess.run(
        [sys.executable, "-m", "trainer.graders", "grader.json", "rows.jsonl"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert completed.stdout.splitlines() == [
        "1\t0.25\t",
        "2\t0\tline 2: ZeroDivisionError: division by zero",
        "mean\t0.125\tof 2",
    ]
    assert completed.returncode == 1


def _alive(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [] if process.status() == psutil.STATUS_ZOMBIE else [process]
    except psutil.NoSuchProcess:
        return []
