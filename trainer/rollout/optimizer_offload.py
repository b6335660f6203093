"""Keep the optimizer's masters and moments on the host while answers are written."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deepspeed.runtime.zero.offload_config import OffloadStateTypeEnum

from trainer.checkpoint.fragments import optimizer_step, set_optimizer_step

_STATES = [OffloadStateTypeEnum.optim_states, OffloadStateTypeEnum.hp_params]


@contextmanager
def offload_optimizer(engine: Any, asked: bool) -> Iterator[None]:  # noqa: ANN401 - deepspeed is untyped
    """Offload within the context; nothing may be saved or updated. Reloads the same bits."""
    if not asked:
        yield
        return
    engine.offload_states(include=_STATES)
    try:
        yield
    finally:
        engine.reload_states()
        set_optimizer_step(engine, optimizer_step(engine))  # AdamW's counts stay on the host
