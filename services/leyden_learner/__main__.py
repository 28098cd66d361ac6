"""`python -m leyden_learner`."""

from leyden_learner.app import main

if __name__ == "__main__":
    main()
