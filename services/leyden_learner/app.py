"""The learner as a process: settings, logs, /healthz and /metrics, a clean stop."""

import asyncio
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import structlog

from leyden_learner.settings import LearnerSettings
from leyden_learner.trackers.installed import TrackerMissing, find_tracker
from leyden_ledger import Ledger
from leyden_runtime.logs import configure_logs
from leyden_runtime.settings import load_settings, secret
from leyden_runtime.shutdown import stop_event
from leyden_runtime.web import make_app, run_app
from leyden_storage import ObjectStore, StoreError, open_store

if TYPE_CHECKING:
    from leyden_learner.processes import Team

log = structlog.get_logger()

_TRACKER_S = 10.0
"""What a tracker gets at the end to take what waits."""


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    settings = load_settings(LearnerSettings)
    if not settings.base_models:
        _refuse("LEYDEN_LEARNER_MODELS: name the base models that runs may train, as `name=folder,name=folder`")
    try:
        store = open_store(settings.store_url, settings.s3_access_key, secret(settings.s3_secret_key))
    except StoreError as error:
        _refuse(f"LEYDEN_STORE_URL: {error}")
    try:
        find_tracker(settings.tracker)
    except TrackerMissing as error:
        _refuse(f"LEYDEN_LEARNER_TRACKER: {error}")
    configure_logs("learner")
    _prepare_torch(settings)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        _train_together(settings, store)
    else:
        asyncio.run(_serve(settings, store))


def _prepare_torch(settings: LearnerSettings) -> None:
    # Here, not above: these imports take seconds, and wrong settings should be told at once.
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(settings.threads)
    if settings.device == "cuda" and not torch.cuda.is_available():
        _refuse("LEYDEN_LEARNER_DEVICE: torch finds no CUDA device; use `auto` or `cpu`")


def _train_together(settings: LearnerSettings, store: ObjectStore) -> None:
    """Be one of several processes: rank 0 is the service, the others do what it does."""
    from leyden_learner.processes import Follower, Team, TeamBroken

    team = Team.join()
    try:
        if team.leads:
            asyncio.run(_serve(settings, store, team))
        else:
            Follower(team, settings.base_models, settings.device, settings.compute).run()
    except TeamBroken as error:
        log.error("team_broken", rank=team.rank, of=team.size, reason=str(error))
        raise SystemExit(1) from error
    finally:
        if team.leads:
            team.dismiss()


async def _serve(settings: LearnerSettings, store: ObjectStore, team: "Team | None" = None) -> None:
    from leyden_learner.loop import Learner
    from leyden_learner.processes import LeadingTrainer
    from leyden_learner.run_training import Surroundings
    from leyden_learner.trackers.tracking import Tracking
    from leyden_learner.trainer import Trainer

    stop = stop_event()
    ledger = Ledger.connect(settings.redis_url)
    make_trainer = partial(LeadingTrainer, team) if team else Trainer
    tracking = Tracking(find_tracker(settings.tracker))
    around = Surroundings(
        ledger, store, settings.base_models, settings.device, settings.compute, make_trainer, tracking
    )
    web = asyncio.create_task(run_app(make_app(), settings.host, settings.port, stop))
    learner = asyncio.create_task(Learner(around, settings.poll_s, settings.run).run(stop))
    try:
        await asyncio.wait({web, learner}, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await asyncio.gather(web, learner)
    finally:
        await asyncio.to_thread(tracking.close, _TRACKER_S)
        await ledger.aclose()


def _refuse(problem: str) -> NoReturn:
    print(f"settings: {problem}", file=sys.stderr)
    raise SystemExit(2)
