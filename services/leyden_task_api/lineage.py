"""From manifests, evaluations and promotions to a run's versions as shown."""

from collections.abc import Collection, Sequence

from leyden_contracts import AdapterManifest, Promotion, RunSpec, adapter_name
from leyden_contracts.api import AdapterView, Lineage, VersionList, VersionView
from leyden_ledger import ReplicaStatus, RunState
from leyden_ledger.evaluations import Progress


def versions_view(
    spec: RunSpec,
    adapters: Sequence[AdapterView],
    progress: Progress,
    replicas: Sequence[ReplicaStatus],
    proved: Collection[int],
    promotions: list[Promotion],
) -> VersionList:
    """Return the base model and all stored versions."""
    promoted = promotions[-1].version if promotions else None

    def view(version: int, adapter: AdapterView | None) -> VersionView:
        names = [adapter_name(str(spec.id), role, version) for role in spec.trained_roles]
        ours = [replica for replica in replicas if replica.base_model == spec.base_model]
        return VersionView(
            version=version,
            parent=adapter.parent if adapter else None,
            metrics=adapter.metrics if adapter else {},
            evaluation=progress.results.get(version),
            evaluating=version in progress.begun and progress.state is not RunState.CANCELLED,
            # A replica on the list serves its base model.
            ready=[replica.id for replica in ours if version == 0 or set(names) <= set(replica.ready)],
            withheld={r.id: r.rejected[name] for r in ours for name in names if name in r.rejected},
            proved=version in proved,
            promoted=version == promoted,
            created=adapter.created if adapter else None,
        )

    versions = [view(0, None), *(view(adapter.version, adapter) for adapter in adapters)]
    return VersionList(promoted=promoted, latest=progress.ready, promotions=promotions, versions=versions)


def lineage_view(
    spec: RunSpec,
    version: int,
    manifest: AdapterManifest | None,
    parents: Sequence[int],
    progress: Progress,
    promotions: Sequence[Promotion],
    first: AdapterManifest | None = None,
) -> Lineage:
    """Return what made a version; without a `manifest` it is the base model. `first` is version 1's manifest."""
    return Lineage(
        run=str(spec.id),
        role=spec.lead_role,
        version=version,
        parents=list(parents),
        base_model=spec.base_model,
        agent=spec.agent,
        grader=spec.grader,
        seed=spec.seed,
        config=manifest.config if manifest else {},
        groups=manifest.groups if manifest else [],
        trained_episodes=manifest.trained_episodes if manifest else [],
        skipped=manifest.skipped if manifest else {},
        files=manifest.files if manifest else {},
        start=first.start if first else None,
        metrics=manifest.metrics if manifest else {},
        evaluation=progress.results.get(version),
        promotions=[promotion for promotion in promotions if promotion.version == version],
        created=manifest.created if manifest else None,
    )
