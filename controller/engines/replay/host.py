"""The host tier: which nodes have copies there, and room for more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.engines.replay.leaves import HOST, Leaves
from controller.engines.replay.tree import Node

if TYPE_CHECKING:
    from controller.engines.replay.tree import Tree


class HostTier:
    """Pages on the host. Copies of what is on the device stay; of the rest the least recently touched leaves go first.

    `free` is in pages. With none from the start the tier is off.
    """

    __slots__ = ("_leaves", "_tree", "free", "on")

    def __init__(self, tree: Tree, pages: int) -> None:
        self.free = pages
        self.on = pages > 0
        self._tree = tree
        self._leaves = Leaves(Node.is_host_leaf, HOST)

    def copy(self, nodes: list[Node]) -> None:
        """Copy the device pages of nodes that follow one another down a chain, as far as room can be made.

        Evicting for all of them at once takes whole chains of leaves in one go.
        """
        want = 0
        for node in nodes:
            if node.device > node.host:
                want += node.device - node.host
        if want > self.free:
            self.free += self._evict(want - self.free)
        for node in nodes:
            more = node.device - node.host
            if more <= 0:
                continue
            if more > self.free:
                more = self.free
                if not more:
                    return
            if not node.host and node.parent is not None:
                node.parent.host_children += 1
            node.host += more
            self.free -= more

    def offer(self, node: Node) -> None:
        """Note a node that has left the device."""
        self._leaves.offer(node)

    def _evict(self, pages: int) -> int:
        """Drop least recently touched leaves that are not on the device, at most `pages` pages; the pages dropped."""
        leaves = self._leaves
        left = pages
        while left and (leaf := leaves.pop()) is not None:
            node, limit = leaf, leaves.next_stamp()
            while True:
                parent = node.parent
                if node.host > left or parent is None:
                    node.host -= left
                    leaves.offer(node)
                    return pages
                left -= node.host
                node.host = 0
                parent.host_children -= 1
                if node.stamp > parent.stamp:
                    parent.stamp = node.stamp - 1
                del parent.children[node.key]
                if not left or parent.stamp > limit or parent.device or parent.host_children or not parent.host:
                    leaves.offer(parent)
                    break
                node = parent  # the chain's next leaf is the least recent of all: no need to queue it
        return pages - left
