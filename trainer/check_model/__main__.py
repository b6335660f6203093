"""Program `python -m trainer.check_model DIR`."""

from trainer.check_model.check import main

if __name__ == "__main__":
    main()
