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

    def copy(self, nodes: list[Node], *, behind_gaps: bool) -> None:
        """Copy device pages of nodes, which follow one another down a chain, as far as room can be made.

        Without `behind_gaps` a node is passed over when its parent is not whole on the host: such a copy could not be
        used.
        """
        per, root = self._tree.node_pages, self._tree.root
        left = 0  # evicting for all of them at once takes whole chains of leaves in one go
        for node in nodes:
            if node.device > node.host:
                left += node.device - node.host
        for node in nodes:
            want = node.device - node.host
            parent = node.parent
            if want <= 0 or parent is None:
                continue
            if behind_gaps or parent.host == per or parent is root:
                if want > self.free:
                    self._evict(left - self.free)
                if taken := min(want, self.free):
                    if not node.host:
                        parent.host_children += 1
                    node.host += taken
                    self.free -= taken
            left -= want

    def offer(self, node: Node) -> None:
        """Note a node that has left the device."""
        self._leaves.offer(node)

    def _evict(self, pages: int) -> None:
        """Drop least recently touched leaves that are not on the device, at most `pages` pages."""
        leaves = self._leaves
        while pages and (leaf := leaves.pop()) is not None:
            node, limit = leaf, leaves.next_stamp()
            while True:
                take = min(node.host, pages)
                node.host -= take
                pages -= take
                self.free += take
                parent = node.parent
                if node.host or parent is None:
                    leaves.offer(node)
                    break
                parent.host_children -= 1
                parent.stamp = max(parent.stamp, node.stamp - 1)
                del parent.children[node.key]
                if not pages or parent.stamp > limit or parent.device or parent.host_children or not parent.host:
                    leaves.offer(parent)
                    break
                node = parent  # the chain's next leaf is the least recent of all: no need to queue it
