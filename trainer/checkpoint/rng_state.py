"""The state of all random generators that training uses, as JSON and back."""

import base64
import random
from dataclasses import dataclass

import numpy as np
import torch

from trainer.contract import Message


@dataclass(frozen=True, kw_only=True)
class RngState(Message):
    """Random generators of one process."""

    torch_cpu: str  # base64
    torch_cuda: str  # base64; empty without CUDA
    python: tuple[int, ...]
    numpy_key: tuple[int, ...]
    numpy_position: int


def seed_rng(*parts: int) -> None:
    """Seed every generator from these numbers, e.g. (seed of the run, step, rank)."""
    words = np.random.SeedSequence(parts).generate_state(2)
    torch.manual_seed(int(words[0]) << 31 ^ int(words[1]))  # CUDA's generators too
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))


def capture_rng() -> RngState:
    """Return the state of the generators."""
    _, python, _ = random.getstate()
    _, key, position, _, _ = np.random.get_state()
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else torch.empty(0)
    return RngState(
        torch_cpu=_encode(torch.get_rng_state()),
        torch_cuda=_encode(cuda),
        python=python,
        numpy_key=tuple(int(k) for k in key),
        numpy_position=int(position),
    )


def restore_rng(state: RngState) -> None:
    """Restore what ``capture_rng`` returned."""
    torch.set_rng_state(_decode(state.torch_cpu))
    if state.torch_cuda and torch.cuda.is_available():
        torch.cuda.set_rng_state(_decode(state.torch_cuda))
    random.setstate((3, state.python, None))
    np.random.set_state(
        ("MT19937", np.array(state.numpy_key, dtype=np.uint32), state.numpy_position, 0, 0.0)
    )


def _encode(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _decode(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
