"""The two-tier prefix cache: page-granular chains on the device and on the host, with LRU leaves, locks and load-back.

The rules follow SGLang 0.5.23 (`UnifiedRadixCache` with a host tier, `PageInterleavePoolAllocator` for lanes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from controller.admission import LoadAnswer
from controller.engines.replay.host import HostTier
from controller.engines.replay.pool import Pool
from controller.engines.replay.tree import Key, Node, Tree
from controller.request import NO_MATCH, UNBOUNDED, PrefixMatch
from controller.vocabulary import HostHit
from estimator.errors import InputError, UsageError

if TYPE_CHECKING:
    from controller.request import Lane

WritePolicy = Literal["write_through", "write_back"]
"""When pages are copied to the host: as they enter the tree, or as they are evicted from the device."""

_NO_HOST: Final = PrefixMatch(host_answer=HostHit.DISABLED)


class Hold:
    """What one request holds in the device tier: a locked prefix in the tree, and private pages behind it."""

    __slots__ = ("base", "found", "inside", "keys", "known_pages", "node", "pages")

    keys: tuple[Key, ...]
    known_pages: int
    """Whole pages whose content has ids, output included."""
    node: Node
    """The last node of the locked prefix, the root for none."""
    inside: int
    """Locked pages of that node."""
    pages: int
    """Locked pages in all; private pages begin here."""
    base: int | None
    """The owner lane of its page 0; None until it holds anything."""
    found: _Found
    """What the last match saw."""


_Found = tuple[Node, int, int, tuple[tuple[Node, int], ...]]
"""(last node on the device, pages in it, device pages in all, host nodes that follow with the pages to bring)."""


class PrefixCache:
    """Prefix chains on the device and the host. A request's part in it is its `Hold`.

    `device_tokens` and `host_tokens` are rounded down to whole pages; None is unbounded, and 0 host tokens turn the
    host tier off. Where a page is larger than a block it is made of several blocks. Raises InputError when neither of
    page and block is a multiple of the other, UsageError for capacities that cannot be.
    """

    __slots__ = ("_blocks_a_key", "_host", "_through", "_tree", "page", "pool")

    def __init__(
        self,
        *,
        page_tokens: int,
        block_tokens: int,
        device_tokens: int | None = None,
        host_tokens: int | None = 0,
        lanes: int = 1,
        write_policy: WritePolicy = "write_through",
    ) -> None:
        if block_tokens % page_tokens and page_tokens % block_tokens:
            raise InputError(
                f"page_size {page_tokens} and the workload's blocks of {block_tokens} tokens do not divide one "
                "another; set page_size to a divisor or a multiple of the block"
            )
        if host_tokens is not None and host_tokens < 0:
            raise UsageError(f"host_tokens is {host_tokens}; it is a whole number >= 0, 0 for no host cache")
        self.page = page_tokens
        self._blocks_a_key = max(1, page_tokens // block_tokens)
        self.pool = Pool((UNBOUNDED if device_tokens is None else device_tokens) // page_tokens, lanes)
        self._tree = Tree(self.pool, max(1, block_tokens // page_tokens))
        self._host = HostTier(self._tree, (UNBOUNDED if host_tokens is None else host_tokens) // page_tokens)
        self._through = write_policy == "write_through"

    @property
    def pool_tokens(self) -> int:
        """Tokens of the device tier."""
        return self.pool.pages * self.page

    @property
    def free_tokens(self) -> int:
        """Tokens in free device pages."""
        return self.pool.free * self.page

    @property
    def evictable_tokens(self) -> int:
        """Tokens in device pages of prefixes nobody has locked."""
        return self.pool.evictable * self.page

    @property
    def room_pages(self) -> int:
        """Free and evictable device pages together."""
        return self.pool.free + self.pool.evictable

    def lane_state(self) -> tuple[Lane, ...]:
        """Free and evictable pages of every owner lane; empty with one lane."""
        return self.pool.lane_state()

    def open(self, hold: Hold, blocks: tuple[int, ...], known_tokens: int) -> None:
        """Begin a request that holds nothing yet. The ids in `blocks` stand for its first `known_tokens` tokens."""
        size = self._blocks_a_key
        hold.keys = blocks if size == 1 else tuple(blocks[i : i + size] for i in range(0, len(blocks) - size + 1, size))
        hold.known_pages = known_tokens // self.page if blocks else 0
        hold.node = self._tree.root
        hold.inside = hold.pages = 0
        hold.base = None
        hold.found = (self._tree.root, 0, 0, ())

    def match(self, hold: Hold, tokens: int) -> PrefixMatch:
        """What is cached of the first `tokens` tokens but the last one, which is always computed. Changes nothing."""
        limit = min((tokens - 1) // self.page, hold.known_pages)
        tree = self._tree
        per, root = tree.node_pages, tree.root
        keys = hold.keys
        whole = limit // per
        node, child = root, None
        depth = unlocked = 0
        for key in keys[:whole]:
            child = node.children.get(key)
            if child is None or child.device < per:
                break
            if not child.ref:
                unlocked += per - max(child.pins) if child.pins else per
            node = child
            depth += 1
        else:
            child = node.children.get(keys[whole]) if limit > whole * per else None
        pages = depth * per
        inside = per if depth else 0
        host = 0
        nodes: tuple[tuple[Node, int], ...] = ()
        if child is not None:
            part = min(child.device, limit - pages)
            if self._host.on and child.device < min(per, limit - pages):
                nodes = self._match_host(child, hold, depth, part, limit)
                host = sum(upto for _, upto in nodes) - part if nodes else 0
            if part:
                node, inside = child, part
                pages += part
                unlocked += max(0, part - child.locked())
        hold.found = (node, inside, pages, nodes)
        chain = root.children.get(keys[0]) if limit else None
        if chain is None:
            return NO_MATCH if self._host.on else _NO_HOST
        page, answer = self.page, HostHit.PLANNED if self._host.on else HostHit.DISABLED
        return PrefixMatch(pages * page, unlocked * page, host * page, host * page, answer, chain.base)

    def _match_host(self, node: Node, hold: Hold, depth: int, offset: int, limit: int) -> tuple[tuple[Node, int], ...]:
        """The nodes whose host pages continue the device hit, each with the pages of it to bring.

        There are no host pages behind a gap: leaves go first, and those of a chain before a copy of it would fail.
        """
        per, keys = self._tree.node_pages, hold.keys
        nodes: list[tuple[Node, int]] = []
        left = limit - depth * per
        while left > per and node.host == per:
            nodes.append((node, per))
            left -= per
            depth += 1
            offset = 0
            child = node.children.get(keys[depth])
            if child is None:
                return tuple(nodes)
            node = child
        have = min(node.host, left)
        if have > offset:
            nodes.append((node, have))
        return tuple(nodes)

    def load(self, hold: Hold) -> LoadAnswer:
        """Bring the host pages the last match saw to the device, all or none."""
        node, inside, pages, nodes = hold.found
        tree, pool = self._tree, self.pool
        first_new = pages
        count = sum(upto - have.device for have, upto in nodes)
        base = nodes[0][0].base
        tree.lock(node, inside)
        if count > pool.free + pool.evictable or (pool.lanes > 1 and pool.short_lane(base, first_new, count)):
            lane = count <= pool.free + pool.evictable
            tree.unlock(node, inside)
            return LoadAnswer(0, HostHit.OWNER_LANE if lane else HostHit.ALLOCATOR)
        for new, upto in nodes:
            have = new.device
            if not have and new.parent is not None:
                new.parent.device_children += 1
            new.device = upto
            pool.loosen(base, new.first + have, upto - have)
        pool.take(base, first_new, count)
        tree.lock(new, upto)
        tree.unlock(node, inside)
        evicted = self._evict()
        tree.unlock(new, upto)
        hold.found = (new, upto, pages + count, ())
        return LoadAnswer(count * self.page, HostHit.LOADED, evicted * self.page)

    def commit(self, hold: Hold) -> None:
        """Lock the prefix the last match or load found, and touch it."""
        node, hold.inside, hold.pages, _ = hold.found
        hold.node = node
        tree = self._tree
        if hold.pages:
            hold.base = node.base
            tree.touch(node)
            tree.lock(node, hold.inside)
        else:
            chain = tree.root.children.get(hold.keys[0]) if hold.known_pages else None
            hold.base = chain.base if chain is not None else self.pool.roomiest()
        hold.found = (tree.root, 0, 0, ())

    def grow(self, hold: Hold, pages: int, more: int) -> None:
        """Give a request that holds `pages` pages in all `more` private ones, evicting what it takes."""
        self.pool.take(hold.base or 0, pages, more)
        if self.pool.free < 0 or self.pool.lanes > 1:
            self._evict()

    def take(self, pages: int) -> None:
        """Take private pages that running requests grow by, evicting what it takes; there is one lane."""
        self.pool.free -= pages
        if self.pool.free < 0:
            self._evict()

    def insert(self, hold: Hold, tokens: int) -> None:
        """Make the whole pages of the first `tokens` tokens a prefix others can hit; the request's lock moves there.

        Pages that are in the tree already are freed. With lanes, a chain that has meanwhile begun in another lane takes
        nothing in, and the pages stay private.
        """
        whole = min(tokens // self.page, hold.known_pages)
        done = hold.pages
        if whole <= done:
            return
        tree, pool, keys, base = self._tree, self.pool, hold.keys, hold.base or 0
        per, root = tree.node_pages, tree.root
        node, inside = hold.node, hold.inside
        if not done and (chain := root.children.get(keys[0])) is not None and chain.base != base:
            return
        fresh: list[Node] = []
        depth, offset = divmod(done, per)
        while done < whole:
            first = depth * per
            want = min(per, whole - first)
            child = node if offset else node.children.get(keys[depth])
            if child is None and want == per:
                fresh += tree.grow(node, keys[depth : whole // per], base)  # behind what is new all is new
                node, inside, depth = fresh[-1], per, whole // per
                done = depth * per
                continue
            if child is None:
                child = tree.child(node, keys[depth], base)
            have = child.device
            if have < want:
                if not have:
                    node.device_children += 1
                child.device = want
                pool.loosen(base, first + have, want - have)
                fresh.append(child)
            if offset < have:
                pool.give(base, done, min(have, want) - offset)
            tree.lock(child, want)
            tree.unlock(node, inside)
            offset = 0
            node, inside = child, want
            done = first + want
            depth += 1
        if fresh and self._through and self._host.on:
            self._write_through(fresh)
        tree.touch(node)
        hold.node, hold.inside, hold.pages = node, inside, whole

    def _write_through(self, fresh: list[Node]) -> None:
        """Copy what has entered the tree, unless it is below what is not whole on the host: that could not be used."""
        parent = fresh[0].parent
        if parent is self._tree.root or (parent is not None and parent.host == self._tree.node_pages):
            self._host.copy(fresh)

    def release(self, hold: Hold, tokens: int) -> None:
        """Let go of all a request holds, `tokens` tokens of it computed; what has ids stays as a prefix."""
        self.insert(hold, tokens)
        private = -(-tokens // self.page) - hold.pages
        if private:
            self.pool.give(hold.base or 0, hold.pages, private)
        if hold.pages:
            self._tree.touch(hold.node)
            self._tree.unlock(hold.node, hold.inside)
        hold.node = self._tree.root
        hold.inside = hold.pages = 0
        hold.base = None

    def _evict(self) -> int:
        """Evict least recently touched leaves, page by page, until no lane is overdrawn; the pages evicted."""
        pool, leaves, host = self.pool, self._tree.leaves, self._host
        write_back = host.on and not self._through
        one_lane = pool.lanes == 1
        whole = part = 0
        missing = pool.missing()
        while missing:
            leaf = leaves.pop()
            assert leaf is not None, "evictable pages without a leaf"  # noqa: S101 - what is evictable was counted
            node, limit = leaf, leaves.next_stamp()
            while True:
                if write_back:
                    host.copy([node])
                if one_lane and not node.pins and node.device <= missing:
                    whole += node.device  # most are; told to the pool all at once
                    missing -= node.device
                    node.device = 0
                else:
                    taken, missing = pool.evict(node, missing)
                    part += taken
                parent = node.parent
                if node.device or parent is None:
                    leaves.offer(node)
                    break
                parent.device_children -= 1
                if node.stamp > parent.stamp:
                    parent.stamp = node.stamp - 1
                if not node.host:
                    del parent.children[node.key]
                elif not node.host_children:
                    host.offer(node)
                if not missing or parent.stamp > limit or parent.ref or parent.device_children or parent.pins:
                    leaves.offer(parent)
                    break
                node = parent  # the chain's next leaf is the least recent of all: no need to queue it
        pool.free += whole
        pool.evictable -= whole
        return whole + part
