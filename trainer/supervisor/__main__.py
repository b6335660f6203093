"""Program `python -m trainer.supervisor`."""

import sys

from trainer.supervisor.main import main

sys.exit(main())
