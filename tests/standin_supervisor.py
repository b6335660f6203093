"""The supervisor's own program with a stand-in for torchrun: `python -m tests.standin_supervisor`.

Arguments: node config, metadata URL, work folder, mode of the trainer, folder common to all nodes.
"""

import logging
import sys
from pathlib import Path

from tests.supervised import QUICK, standin
from trainer.supervisor.main import Settings, supervise


def main() -> int:
    """Supervise as main.py does, but quickly."""
    config, metadata_url, work, mode, common = sys.argv[1:]
    logging.basicConfig(level="INFO", format="%(asctime)s %(name)s %(message)s")
    settings = Settings(node_config=Path(config), metadata_url=metadata_url, work=Path(work))
    return supervise(settings, standin(lambda: mode, Path(common)), QUICK)


if __name__ == "__main__":
    sys.exit(main())
