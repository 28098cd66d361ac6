"""The task API: runs, tasks, episodes and results over HTTP. It also rings for due episodes and ends lost ones."""
