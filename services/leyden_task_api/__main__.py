"""`python -m leyden_task_api`."""

from leyden_task_api.server import main

if __name__ == "__main__":
    main()
