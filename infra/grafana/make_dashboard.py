"""Generate the Grafana dashboard: `just dashboard` writes leyden.json beside this file."""

from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.timeseries import Panel
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import TimeZoneBrowser
from grafana_foundation_sdk.models.dashboard import DataSourceRef

SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
PANELS: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    (
        "Reward",
        "short",
        "Mean reward of each training step's batch.",
        [('max by (run) (leyden_learner_reward_mean{run=~"$run"})', "{{run}}")],
    ),
    (
        "Groups with a signal",
        "percentunit",
        "Of each training step's groups, the share that it trained on. What it did not is told by reason.",
        [('max by (run) (leyden_learner_signal_share{run=~"$run"})', "{{run}}")],
    ),
    (
        "Held-out success",
        "percentunit",
        "Mean reward of evaluation episodes, by policy version.",
        [('max by (run, version) (leyden_run_eval_reward{run=~"$run"})', "{{run}} v{{version}}")],
    ),
    (
        "Promoted version",
        "short",
        "The version that `leyden/RUN:best` stands for.",
        [('max by (run) (leyden_run_promoted_version{run=~"$run"})', "{{run}}")],
    ),
    (
        "Evaluation score",
        "short",
        "On the run's held-out tasks: the promoted version's, and the newest score.",
        [('max by (run, which) (leyden_run_evaluation_score{run=~"$run"})', "{{run}} {{which}}")],
    ),
    (
        "Backlog",
        "short",
        "Episodes that have not ended. Queued ones wait for their group's release or for a worker.",
        [('max by (state) (leyden_run_episodes{run=~"$run", state=~"queued|running|collecting"})', "{{state}}")],
    ),
    (
        "Versions",
        "short",
        "Published by the learner, and proved by a replica. A gap that stays: see `leyden adapters RUN`.",
        [('max by (run, stage) (leyden_run_version{run=~"$run"})', "{{run}} {{stage}}")],
    ),
    (
        "Failed attempts by reason",
        "short",
        "None of these ever becomes a reward.",
        [('max by (reason) (leyden_run_failed_attempts{run=~"$run"})', "{{reason}}")],
    ),
    (
        "Advantage",
        "short",
        "Of the newest step's calls. Where its size falls to 0, nothing is left to learn from these tasks.",
        [
            ('max by (run, role) (leyden_learner_advantage_abs{run=~"$run"})', "{{run}} {{role}} size"),
            ('max by (run, role) (leyden_learner_advantage_std{run=~"$run"})', "{{run}} {{role}} deviation"),
            ('max by (run, role) (leyden_learner_advantage_mean{run=~"$run"})', "{{run}} {{role}} mean"),
        ],
    ),
    (
        "Entropy",
        "short",
        "Nats a token. Exact where the loss has an entropy bonus; else as the sampled tokens tell it.",
        [
            (
                'max by (run, role) (leyden_learner_entropy{run=~"$run"} '
                'or leyden_learner_entropy_sampled{run=~"$run"})',
                "{{run}} {{role}}",
            ),
        ],
    ),
    (
        "KL and importance ratio",
        "short",
        "How far the trained policy is from the one that sampled.",
        [
            ('max by (run, role) (leyden_learner_kl{run=~"$run"})', "{{run}} {{role}} KL"),
            ('max by (run, role) (leyden_learner_ratio_mean{run=~"$run"})', "{{run}} {{role}} ratio"),
        ],
    ),
    (
        "Clipped tokens",
        "percentunit",
        "Share of the tokens whose gradient the clip removed.",
        [
            ('max by (run, role) (leyden_learner_clip_fraction{run=~"$run"})', "{{run}} {{role}}"),
        ],
    ),
    (
        "Loss and gradient norm",
        "short",
        "The norm before clipping.",
        [
            ('max by (run, role) (leyden_learner_loss{run=~"$run"})', "{{run}} {{role}} loss"),
            ('max by (run, role) (leyden_learner_grad_norm{run=~"$run"})', "{{run}} {{role}} norm"),
        ],
    ),
    (
        "Staleness",
        "short",
        "Mean age of a step's data, in versions.",
        [
            ('max by (run, role) (leyden_learner_staleness_mean{run=~"$run"})', "{{run}} {{role}}"),
        ],
    ),
    (
        "Training speed",
        "short",
        "Response tokens a second of the newest step.",
        [
            ('max by (run, role) (leyden_learner_tokens_per_second{run=~"$run"})', "{{run}} {{role}}"),
        ],
    ),
    (
        "Dropped in training",
        "short",
        "Trajectories and tokens that were not trained on, by reason; groups that gave no signal.",
        [
            (
                'sum by (reason) (increase(leyden_learner_dropped_total{run=~"$run"}[10m])) or vector(0)',
                "trajectories {{reason}}",
            ),
            (
                'sum by (reason) (increase(leyden_learner_dropped_tokens_total{run=~"$run"}[10m])) or vector(0)',
                "tokens {{reason}}",
            ),
            (
                'sum by (reason) (increase(leyden_learner_skipped_groups_total{run=~"$run"}[10m])) or vector(0)',
                "groups {{reason}}",
            ),
        ],
    ),
    (
        "LLM calls",
        "reqps",
        "By how they ended.",
        [("sum by (outcome) (rate(leyden_gateway_calls_total[1m]))", "{{outcome}}")],
    ),
    (
        "Call latency",
        "s",
        "Through the gateway, engine included.",
        [
            ("histogram_quantile(0.5, sum by (le) (rate(leyden_gateway_call_seconds_bucket[1m])))", "median"),
            ("histogram_quantile(0.95, sum by (le) (rate(leyden_gateway_call_seconds_bucket[1m])))", "95 %"),
        ],
    ),
    (
        "Spans and trajectories",
        "cps",
        "Spans stored, and what became of closed attempts.",
        [
            ("sum(rate(leyden_collector_spans_accepted_total[1m]))", "spans"),
            ("sum by (outcome) (rate(leyden_collector_trajectories_total[1m]))", "trajectories {{outcome}}"),
        ],
    ),
]


def make_dashboard() -> str:
    """Return the dashboard as Grafana's JSON."""
    board = (
        Dashboard("Leyden")
        .uid("leyden")
        .tags(["leyden"])
        .timezone(TimeZoneBrowser)
        .refresh("10s")
        .time("now-1h", "now")
        .with_variable(DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .with_variable(
            QueryVariable("run")
            .label("Run")
            .datasource(SOURCE)
            .query("label_values(leyden_run_version, run)")
            .include_all(True)
            .multi(True)
            .all_value(".*")
        )
    )
    for title, unit, description, queries in PANELS:
        panel = Panel().title(title).description(description).unit(unit).datasource(SOURCE).height(8).span(12)
        for number, (query, legend) in enumerate(queries):
            panel = panel.with_target(Dataquery().expr(query).legend_format(legend).ref_id(chr(ord("A") + number)))
        board = board.with_panel(panel)
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("leyden.json").write_text(make_dashboard())
