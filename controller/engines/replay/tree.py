"""The prefix tree: chains of blocks, and who has locked them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from controller.engines.replay.leaves import DEVICE, Leaves

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controller.engines.replay.pool import Pool

Key = int | tuple[int, ...]
"""What names a node under its parent: a block id, or the ids of the blocks that make up one page."""


class Node(msgspec.Struct, gc=False, eq=False):
    """One block of a chain. Its pages on the device, on the host and under a lock are each the first so many of it.

    Below the first node that is not whole on the device nothing is on the device. The collector does not look at
    nodes (gc=False): there are hundreds of thousands, and `Tree` unties them itself.
    """

    parent: Node | None
    key: Key
    first: int
    """Which page of the chain its first page is."""
    base: int
    """The owner lane of the chain's page 0."""
    stamp: int
    """When it was touched last; higher is later. An ancestor counts as touched just before each node below it, but
    gets that stamp only when the node goes: no ancestor is a leaf before."""
    device: int = 0
    """Pages on the device."""
    host: int = 0
    """Pages on the host."""
    ref: int = 0
    """Holders of the whole block: requests whose lock ends here, and children that are held."""
    pins: tuple[int, ...] = ()
    """Pages locked by each request whose lock ends inside this block."""
    device_children: int = 0
    host_children: int = 0
    queued: int = 0
    """In which `Leaves` it stands, as their bits."""
    children: dict[Key, Node] = {}

    def locked(self) -> int:
        """Pages that may not be evicted from the device."""
        if self.ref:
            return self.device
        return max(self.pins) if self.pins else 0

    def is_device_leaf(self) -> bool:
        """Whether its last device page may be evicted next."""
        if self.ref or self.device_children:
            return False
        return self.device > (max(self.pins) if self.pins else 0)

    def is_host_leaf(self) -> bool:
        """Whether its last host page may be evicted next: it is not on the device, nothing below it is on the host."""
        return self.host > 0 and self.device == 0 and self.host_children == 0


class Tree:
    """The nodes under one root, with locks. `node_pages` is the number of pages of a whole node."""

    __slots__ = ("clock", "leaves", "node_pages", "pool", "root")

    def __init__(self, pool: Pool, node_pages: int) -> None:
        self.pool = pool
        self.node_pages = node_pages
        self.root = Node(None, 0, -node_pages, 0, 0, ref=1)
        self.leaves = Leaves(Node.is_device_leaf, DEVICE)
        self.clock = 0
        """The latest stamp."""

    def lock(self, node: Node, inside: int) -> None:
        """Keep the first `inside` pages of a node, and all of its ancestors, on the device."""
        if node.parent is None:
            return
        pool = self.pool
        one_lane = pool.lanes == 1  # spares a call for every node
        if inside < self.node_pages:
            pins = node.pins
            node.pins = (*pins, inside)
            if node.ref:
                return
            locked = max(pins) if pins else 0
            if inside > locked:
                pool.tighten(node.base, node.first + locked, inside - locked)
            if pins:
                return
            node = node.parent
        while True:
            node.ref += 1
            if node.ref > 1:
                return
            if node.pins:
                locked = max(node.pins)
                pool.tighten(node.base, node.first + locked, node.device - locked)
                return
            if one_lane:
                pool.evictable -= node.device
            else:
                pool.tighten(node.base, node.first, node.device)
            node = node.parent  # type: ignore[assignment]  # the root is held for good, so the walk ends there

    def unlock(self, node: Node, inside: int) -> None:
        """Give up what `lock` was given."""
        if node.parent is None:
            return
        pool, end = self.pool, node
        one_lane = pool.lanes == 1  # spares a call for every node
        held = True
        if inside < self.node_pages:
            pins = list(node.pins)
            pins.remove(inside)
            node.pins = tuple(pins)
            locked = max(pins) if pins else 0
            if not node.ref:
                if inside > locked:
                    pool.loosen(node.base, node.first + locked, inside - locked)
                held = bool(pins)
            node = node.parent
        else:
            held = False
        while not held:
            node.ref -= 1
            if node.ref:
                break
            if node.pins:
                locked, held = max(node.pins), True
                pool.loosen(node.base, node.first + locked, node.device - locked)
            elif one_lane:
                pool.evictable += node.device
            else:
                pool.loosen(node.base, node.first, node.device)
            node = node.parent  # type: ignore[assignment]  # as above
        self.leaves.offer(end)

    def touch(self, node: Node) -> None:
        """Make a node the most recently used one, with stamps to spare for its ancestors."""
        self.clock += node.first + self.node_pages
        node.stamp = self.clock

    def child(self, node: Node, key: Key, base: int) -> Node:
        """Make a child with nothing in it."""
        self.clock += 1
        child = node.children[key] = Node(node, key, node.first + self.node_pages, base, self.clock)
        return child

    def grow(self, node: Node, keys: Iterable[Key], base: int) -> list[Node]:
        """Make a chain of children that are whole on the device, and move the caller's lock of a node to the last one.

        Each is held by the next from then on, so nothing else changes. The root, which nobody locks, counts one more
        held child. The children are returned, the nearest first.
        """
        per, first, clock = self.node_pages, node.first, self.clock
        if node.parent is None:
            node.ref += 1
        grown = []
        for key in keys:
            first += per
            clock += 1
            node.device_children += 1
            child = node.children[key] = Node(node, key, first, base, clock, per, 0, 1)
            grown.append(child)
            node = child
        self.clock = clock
        return grown

    def __del__(self) -> None:
        """Untie parents from children, since no collector does."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            waiting.extend(node.children.values())
            node.children.clear()
