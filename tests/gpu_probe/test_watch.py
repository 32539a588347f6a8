"""Counting live storages."""

import pytest


@pytest.fixture
def watch(torch):
    """A watch over the meta device."""
    from gpu_probe.watch import StorageWatch  # noqa: PLC0415 - imports torch

    assert torch
    return StorageWatch("meta")


def test_views_and_in_place_work_count_once(watch, torch):
    """A storage counts once, whatever views there are, until the last reference to it is gone."""
    with watch:
        base = torch.empty(100, 10, device="meta")
        view = base[5:].transpose(0, 1)
        view.add_(1)
        del base
        assert watch.peaks().requested == 4000
        torch.empty(1, device="meta")
        del view
        again = torch.empty(1000, device="meta")
    assert watch.peaks().requested == 4004
    assert again.shape == (1000,)


def test_what_is_known_is_not_counted(watch, torch):
    """Tensors made before, and views of them, are not counted; what an operator makes of them is."""
    weights = torch.empty(10, 10, device="meta")
    watch.know(weights)
    with watch:
        part = weights[:5]
        assert watch.peaks().requested == 0
        kept = part @ weights
    assert watch.peaks().requested == 4 * 50
    assert kept.shape == (5, 10)


def test_a_side_stream_keeps_what_it_has_freed(watch, torch):
    """What a side stream has freed stays with it: it is held, though it is no longer live."""
    with watch:
        with watch.stream("gather"):
            first = torch.empty(1000, dtype=torch.uint8, device="meta")
            del first
        second = torch.empty(500, dtype=torch.uint8, device="meta")
        assert watch.peaks().requested == 1000
        assert watch.peaks().held == 1500
    assert second.numel() == 500


def test_a_kernels_workspace_is_not_counted(watch, torch):
    """What stands for a kernel's own workspace is left out."""
    with watch:
        with watch.kernel():
            torch.empty(1000, device="meta")
        torch.empty(1, device="meta")
    assert watch.peaks().requested == 4


def test_other_devices_are_not_counted(watch, torch):
    """A tensor on another device is no part of the count."""
    with watch:
        torch.empty(1000)
    assert watch.peaks().requested == 0
