"""What the fork server of `preloaded.py` imports, with the environment that a rank is given."""

import os

os.environ.update({"REKINDLE_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"})  # noqa: TID251 - torch's

from trainer import train  # noqa: F401 - to have it
