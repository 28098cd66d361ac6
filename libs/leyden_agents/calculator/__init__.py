"""The demo: an agent in plain `openai` SDK code, its tasks, its grader, its tiny model and its training recipe."""
