"""`python -m tests.system.exactness`: see `matrix.py`."""

from tests.system.exactness.matrix import main

if __name__ == "__main__":
    main()
