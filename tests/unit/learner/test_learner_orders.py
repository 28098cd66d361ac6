"""What the leader of several processes tells the others, and that it tells them everything."""

import json
from inspect import isfunction

from leyden_learner.processes import LeadingTrainer
from leyden_learner.processes.orders import Order, pack_files, pack_groups, split, unpack_files, unpack_groups
from leyden_learner.trainer import Trainer
from support.learning import make_group

READS_ONLY = {"files", "has_signal"}
"""What of a trainer only the leader does, for it changes nothing."""


def test_an_order_survives_its_way():
    order = Order("batch", 3, {"groups": [["a", 2]]}, {"one": b"\0\xff", "none": b"", "two": b"xyz"}, [1, 2])

    assert split(json.loads(order.header()), b"".join(order.blobs.values())) == order


def test_groups_keep_their_order_and_empty_ones_too():
    groups = [make_group("b", (1, 0, float("inf"))), ("empty", []), make_group("a", (0.5,))]

    assert [(group, list(own)) for group, own in unpack_groups(*pack_groups(groups))] == groups


def test_files_keep_their_roles():
    files = {"writer": {"a": b"1", "b": b""}, "checker": {"a": b"2"}}

    assert unpack_files(pack_files(files)) == files


def test_whatever_changes_a_trainer_is_told_to_all():
    public = {name for name, one in vars(Trainer).items() if isfunction(one) and not name.startswith("_")}

    assert public - READS_ONLY <= vars(LeadingTrainer).keys()
