"""The supervisor's small parts: reports, tails, metadata events, ports, outbox, memory on disk."""

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.nodes.scripted_node import committed, metrics
from tests.nodes.standin_trainer import save
from tests.nodes.supervised import ALONE
from tests.unit.trainer.process.trainer_spec import ME
from trainer.contract import GpuErrors, SaveCost, Span
from trainer.process.journal import Journal
from trainer.rundir import RunDir
from trainer.supervisor.blob.container import BlobAccess, JobContainer
from trainer.supervisor.blob.retry import StopOnStandstill, bytes_on_disk
from trainer.supervisor.blob.transfer import CorruptError
from trainer.supervisor.clock import NodeClock
from trainer.supervisor.control.node_controller import NodeController
from trainer.supervisor.control.node_state import NodeState
from trainer.supervisor.input.fetch import path_inside
from trainer.supervisor.machine.health import GpuReading
from trainer.supervisor.machine.metadata import find_eviction
from trainer.supervisor.machine.network import free_port
from trainer.supervisor.report.file_followers import LineTail, RunFileFollower
from trainer.supervisor.report.heartbeat_reports import (
    MAX_QUEUED_METRICS,
    METRICS_SENT,
    HeartbeatReports,
)
from trainer.supervisor.report.log_upload import BLOCKS, AppendBlob
from trainer.supervisor.upload.outbox import Outbox


class TestReports:
    def test_what_was_not_answered_is_sent_again_and_what_was_answered_no_more(self) -> None:
        reports = HeartbeatReports()
        reports.add_metrics([metrics(1)])
        reports.add_spans([_span("load")])
        first = reports.next_payload()
        reports.add_metrics([metrics(2)])

        assert reports.next_payload().metrics == (*first.metrics, metrics(2))
        assert reports.next_payload().spans == first.spans
        reports.mark_delivered(first)
        assert [m.step for m in reports.next_payload().metrics] == [2]

    def test_an_outage_keeps_the_newest(self) -> None:
        reports = HeartbeatReports()
        reports.add_metrics([metrics(step) for step in range(MAX_QUEUED_METRICS + 7)])

        batch = reports.next_payload()
        assert len(batch.metrics) == METRICS_SENT
        assert batch.metrics[0].step == 7

    def test_what_was_pushed_out_while_it_was_sent_confuses_nothing(self) -> None:
        reports = HeartbeatReports()
        reports.add_metrics([metrics(step) for step in range(MAX_QUEUED_METRICS)])
        batch = reports.next_payload()
        reports.add_metrics([metrics(MAX_QUEUED_METRICS + n) for n in range(METRICS_SENT - 1)])
        reports.mark_delivered(batch)

        assert reports.next_payload().metrics[0].step == METRICS_SENT

    def test_a_backlog_is_told_at_once(self) -> None:
        reports = HeartbeatReports()
        reports.add_metrics([metrics(step) for step in range(METRICS_SENT + 1)])
        reports.mark_delivered(reports.next_payload())

        assert reports.changed.is_set()

    def test_gpu_errors_are_told_until_they_are_answered_and_then_no_more(self) -> None:
        reports = HeartbeatReports()
        reports.record_gpus(GpuReading(errors=GpuErrors(corrected=5)))
        first = reports.next_payload()
        reports.record_gpus(GpuReading(errors=GpuErrors(corrected=7, fatal_xids=1)))
        repeated = reports.next_payload()  # the first was not answered
        reports.mark_delivered(repeated)
        reports.record_gpus(GpuReading())  # the driver does not answer
        quiet = reports.next_payload()
        reports.record_gpus(GpuReading(errors=GpuErrors(corrected=8, fatal_xids=1)))

        assert first.gpu_errors == GpuErrors(corrected=5)
        assert repeated.gpu_errors == GpuErrors(corrected=7, fatal_xids=1)
        assert quiet.gpu_errors is None
        assert reports.next_payload().gpu_errors == GpuErrors(corrected=1)

    def test_commits_and_first_steps_are_news_but_later_steps_are_not(self) -> None:
        reports = HeartbeatReports()
        reports.begin_run(10)
        reports.record_step(10)  # what the trainer has loaded is no step of its own
        assert not reports.changed.is_set()
        reports.record_step(11)
        assert reports.changed.is_set()
        reports.changed.clear()
        reports.record_step(12)
        assert not reports.changed.is_set()
        reports.add_committed([committed(1, 1)])

        assert reports.changed.is_set()

    def test_trouble_is_over_with_its_run_and_the_next_one_tells_no_end_of_it(
        self, tmp_path: Path
    ) -> None:
        reports = HeartbeatReports()
        reports.begin_trouble("disk", "full", since=5.0)
        reports.end_all_troubles(9.0)
        RunFileFollower(RunDir(tmp_path), reports, NodeClock(), lambda at: at).report_news()

        troubles = [(t.kind, t.since, t.until) for t in reports.next_payload().troubles]
        assert troubles == [("disk", 5.0, 0.0), ("disk", 5.0, 9.0)]


class TestTails:
    def test_a_half_line_waits_for_its_end(self, tmp_path: Path) -> None:
        tail = LineTail(tmp_path / "file")
        assert tail.read_new_lines() == []
        (tmp_path / "file").write_text("one\ntw")
        assert tail.read_new_lines() == [b"one"]
        (tmp_path / "file").write_text("one\ntwo\n")

        assert tail.read_new_lines() == [b"two"]

    def test_what_the_trainer_warns_of_is_said_once(self, tmp_path: Path) -> None:
        folder, reports = RunDir(tmp_path), HeartbeatReports()
        follower = RunFileFollower(folder, reports, NodeClock(), lambda at: at)
        for text in ("the loss jumps", "the loss jumps higher"):
            Journal(folder, ME).warn("spike", text)
            follower.report_news()

        troubles = [(t.kind, t.message) for t in reports.next_payload().troubles]
        assert troubles == [("training", "the loss jumps")]

    def test_a_line_that_makes_no_sense_is_left_out(self, tmp_path: Path) -> None:
        folder, reports = RunDir(tmp_path), HeartbeatReports()
        folder.metrics.write_text(f"{{}}\n{metrics(3).to_json()}\n")
        folder.spans.write_text(_span("load").to_json() + "\n")
        folder.progress.write_text("3")
        folder.save_cost.write_text(SaveCost(stall=0.5, upload=2.0, blocks=1).to_json())
        RunFileFollower(folder, reports, NodeClock(), lambda at: at + 60.0).report_news()

        batch = reports.next_payload()
        assert [m.step for m in batch.metrics] == [3]
        assert [s.name for s in batch.spans] == ["load"]
        measured = reports.save_cost
        reports.begin_run(3)
        assert (measured, reports.save_cost) == (SaveCost(stall=0.5, upload=2.0, blocks=1), None)
        assert batch.metrics[0].at == metrics(3).at + 60.0  # by the service's clock
        assert reports.step == 3


class TestEvictions:
    def test_a_notice_names_the_time(self) -> None:
        notice = find_eviction([_event()], "rk-1_0", 5.0)

        assert notice is not None
        assert (notice.event_id, notice.not_before, notice.seen_at) == ("e", 1660064852.0, 5.0)

    def test_an_eviction_that_has_begun_names_no_time(self) -> None:
        notice = find_eviction([_event(NotBefore="", EventStatus="Started")], "rk-1_0", 5.0)

        assert notice is not None
        assert notice.not_before == 0.0

    @pytest.mark.parametrize("change", [{"EventType": "Reboot"}, {"Resources": ["rk-1_1"]}])
    def test_other_events_and_other_machines_do_not_matter(self, change: dict[str, object]) -> None:
        assert find_eviction([_event(**change)], "rk-1_0", 5.0) is None


class TestPorts:
    def test_a_port_that_is_still_free_is_kept_and_one_that_was_taken_replaced(self) -> None:
        port = free_port("127.0.0.1")

        assert free_port("127.0.0.1", port) == port
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))

            assert free_port("127.0.0.1", listener.getsockname()[1]) != listener.getsockname()[1]

    def test_an_address_of_another_machine_is_called_so(self) -> None:
        with pytest.raises(OSError, match=r"192\.0\.2\.1"):
            free_port("192.0.2.1")


class TestOutbox:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> RunDir:
        """Return a run folder."""
        return RunDir(tmp_path)

    def test_a_save_is_whole_once_every_local_rank_has_added_to_it(self, folder: RunDir) -> None:
        outbox = _outbox(folder, range(2, 4))
        save(folder, GENERATION, 2, 10, "checkpoints/step-10-n", 4, "stop")
        assert outbox.complete_saves() == []
        save(folder, GENERATION, 3, 10, "checkpoints/step-10-n", 4, "stop")

        assert [[r.rank for r in records] for records in outbox.complete_saves()] == [[2, 3]]

    def test_older_saves_go_first(self, folder: RunDir) -> None:
        for step in (30, 10, 20):
            save(folder, GENERATION, 0, step, f"checkpoints/step-{step}-n", 1, "periodic")

        steps = [records[0].step for records in _outbox(folder, range(1)).complete_saves()]
        assert steps == [10, 20, 30]


class TestMemory:
    @pytest.mark.parametrize("content", ["{", '{"epoch": "three"}'])
    def test_a_memory_that_was_lost_is_no_reason_to_crash(
        self, tmp_path: Path, content: str
    ) -> None:
        (tmp_path / "node.json").write_text(content)

        assert NodeController(tmp_path).node == NodeState()


class TestPatience:
    def test_an_outage_begins_when_nothing_comes_any_more(self) -> None:
        at, received = [0.0], [0]
        enough = StopOnStandstill(lambda: received[0], lambda: at[0], 300.0)
        at[0], received[0] = 5000.0, 70_000  # a base model, and then a hiccup
        assert not enough()
        at[0] = 5300.0
        assert not enough()
        at[0] = 5301.0

        assert enough()

    def test_a_file_that_comes_to_the_same_place_again_is_no_news(self) -> None:
        at, received = [0.0], [40_000]
        enough = StopOnStandstill(lambda: received[0], lambda: at[0], 300.0)
        received[0] = 0  # begun again
        at[0] = 200.0
        assert not enough()
        at[0], received[0] = 301.0, 40_000

        assert enough()

    def test_of_a_file_counts_what_is_there_not_how_long_it_will_be(self, tmp_path: Path) -> None:
        with (tmp_path / "coming").open("wb") as file:
            file.truncate(2**30)
        assert bytes_on_disk(tmp_path) < 2**20
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "here").write_bytes(b"x" * 2**20)

        assert 2**20 <= bytes_on_disk(tmp_path) < 2**21
        assert bytes_on_disk(tmp_path / "nowhere") == 0


@pytest.mark.parametrize("name", ["../x", "inputs/../../x", "/x"])
def test_an_input_whose_name_leads_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CorruptError, match="leads out of its folder"):
        path_inside(tmp_path, name)


def test_a_log_spares_its_last_blocks_for_much_at_once() -> None:
    blob = AppendBlob(JobContainer(BlobAccess(), "http://127.0.0.1:9/a/c"), "logs/x")
    assert blob.is_worth_a_block(1)
    blob.blocks = BLOCKS - 100
    assert not blob.is_worth_a_block(1000)
    assert blob.is_worth_a_block(300_000)
    blob.blocks = BLOCKS

    assert blob.is_full


GENERATION = replace(ALONE, processes_per_node=4)


def _outbox(folder: RunDir, ranks: range) -> Outbox:
    return Outbox(JobContainer(BlobAccess(), "http://127.0.0.1:9/a/c"), folder, ranks)


def _span(name: str) -> Span:
    return Span(name=name, started_at=0.0, ended_at=1.0)


def _event(**change: object) -> dict[str, object]:
    """Return a Preempt event as Azure documents it."""
    text = """{"EventId": "e", "EventStatus": "Scheduled", "EventType": "Preempt",
        "ResourceType": "VirtualMachine", "Resources": ["rk-1_0"], "Description": "",
        "NotBefore": "Tue, 09 Aug 2022 17:07:32 GMT", "DurationInSeconds": -1}"""
    event: dict[str, object] = json.loads(text)
    return event | change
