"""The learning lab: does a strategy help? Small agents, the learner's real code, several seeds, intervals.

`just learning` runs it (`__main__`). The map, from the outside in:

    grid           which studies, strategies and seeds; what is expected of each, stated before running
    running        what is missing, in several processes
    cells          one training run: play groups, step, publish, measure on held-out tasks before and after
    environments   the agents: each a plain program that asks a model
    playing        runs many programs side by side; their asks become one batch
    sampler        answers asks with the embedded engine and the learner's published adapters
    recording      what was played, as the learner's trajectories
    results        one JSON line a finished cell; what is there is not run again
    intervals      means with Student's t intervals
    findings       what the results say: gains, differences, verdicts, and what makes the command fail
    page, plot     the table and the picture in infra/docs

Nothing stands between this and what a deployment trains but the network: `Trainer.build_batch` and `Trainer.step` are
the learner's own, and replies come from adapters that went through the checkpoint's files.
"""
