"""The input of the verifying process: where the files are, and the expected values."""

from dataclasses import dataclass

from trainer.contract.wire import Message
from trainer.verify.rows import VerificationRow
from trainer.verify.tokenizer_facts import TokenizerFacts


@dataclass(frozen=True, kw_only=True)
class ExpectedExport(Message):
    """All input of the verifying process besides the run spec. Paths are absolute."""

    model: str  # the exported folder
    base: str  # the base model's folder
    data: str  # the file of the rows
    rows: tuple[VerificationRow, ...]
    values: tuple[tuple[float, ...], ...]  # the trainer's, by row
    dtypes: tuple[str, ...]  # of the trained model's weights, as safetensors names them
    tokenizer: TokenizerFacts
    pad_token: str | None  # that a model with a head must pad with
    device: str  # of the trainer, such as "cuda:0"
    exact: bool  # the trainer computes as plain transformers does, if the device is the same
    gpu_memory: int  # bytes that are free; 0 on a CPU
    host_memory: int
