"""`python -m trainer.verify RUNDIR EXPECTED RESULT`: verify an exported model.

A child of the run's first rank (`trainer/verify/launcher.py`), with which it ends. EXPECTED is an
`ExpectedExport` as JSON; RESULT becomes a `Verification`.
"""

import argparse
import logging
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

from trainer.contract import RunSpec
from trainer.rundir import RunDir, write_atomically
from trainer.verify.checks import ExpectedExport, verify_export
from trainer.verify.result import MISMATCH, Verification

log = logging.getLogger("trainer")


def main() -> None:
    """Verify; any error becomes part of the result."""
    parser = argparse.ArgumentParser(prog="python -m trainer.verify", description=__doc__)
    for name in ("rundir", "expected", "result"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.basicConfig(format="%(asctime)s %(message)s")
    start = time.monotonic()
    spec = RunSpec.from_json(RunDir(options.rundir).run_spec.read_bytes())
    expected = ExpectedExport.from_json(options.expected.read_bytes())
    try:
        verification = verify_export(expected, spec)
    except Exception as error:
        log.exception("the verification failed")
        verification = Verification(status=MISMATCH, reason=f"{type(error).__name__}: {error}")
    verification = replace(verification, seconds=round(time.monotonic() - start, 1))
    write_atomically(options.result, verification.to_json())


def _end_with_parent() -> None:
    """Exit when the parent closes our standard input."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
