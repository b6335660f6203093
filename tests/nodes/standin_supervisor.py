"""Run the supervisor's program with a stand-in for torchrun.

Arguments: node config, metadata URL, work folder, mode of the trainer, folder shared by all nodes.
With only the last two, the environment supplies the others, as for the real program.
"""

import logging
import os
import sys
from pathlib import Path

from tests.nodes.supervised import QUICK, standin
from trainer.supervisor.main import SupervisorSettings, read_settings, run_supervisor


def main() -> int:
    """Run the supervisor as main.py does, with short intervals."""
    *where, mode, common = sys.argv[1:]
    logging.basicConfig(level="INFO", format="%(asctime)s %(name)s %(message)s")
    if where:
        config, url, work = where
        settings = SupervisorSettings(node_config=Path(config), metadata_url=url, work=Path(work))
    else:
        settings = read_settings(os.environ)  # noqa: TID251 - a program of its own
    return run_supervisor(settings, standin(lambda: mode, Path(common)), QUICK)


if __name__ == "__main__":
    sys.exit(main())
