"""Event files are what TensorBoard reads, to the byte."""

import pytest

from contract import events_file
from contract.figures import tagged

# Both as TensorFlow's own writer makes them (tensorboard 2.21, summary.writer.record_writer).
BEGINNING = bytes.fromhex(
    "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9"
)
EVENT = bytes.fromhex(
    "34000000000000005e33175c0900006040fc54d94110ac022a260a110a0a747261696e2f6c6f737315000020400a110a0a76616c69642f6c6f737315cdcccc3d7f81e0bd"
)


def test_the_checksum_is_castagnolis() -> None:
    assert events_file.crc32c(b"123456789") == 0xE3069283  # RFC 3720's and everybody's check


def test_a_file_is_byte_for_byte_what_tensorboards_own_writer_makes() -> None:
    assert events_file.beginning(1700000000.25) == BEGINNING
    assert events_file.event(1700000001.5, 300, {"train/loss": 2.5, "valid/loss": 0.1}) == EVENT


@pytest.mark.parametrize(
    ("row", "tags"),
    [
        ({"step": 3, "generation": 1, "loss": 0.5, "valid_loss": None}, {"train/loss": 0.5}),
        ({"loss": 1.0, "valid_loss": 2.0}, {"train/loss": 1.0, "valid/loss": 2.0}),
        (
            {"loss": 1.0, "reward": 0.25, "valid_loss": -0.5},
            {"train/loss": 1.0, "train/reward": 0.25, "valid/reward": 0.5},
        ),
        ({"loss": float("inf"), "grad_norm": float("nan"), "tokens": 7}, {"train/tokens": 7}),
    ],
)
def test_a_step_has_a_tag_for_each_figure_that_is_a_number(
    row: dict[str, float | None], tags: dict[str, float]
) -> None:
    assert tagged(row) == tags
