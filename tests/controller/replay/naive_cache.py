"""A reference for the prefix cache: plain dicts, one entry a page, everything counted anew each time."""

from itertools import count

from controller.engines.replay.cache import PrefixCache
from controller.vocabulary import HostHit


class NaiveHold:
    """A request's page names with ids, the pages it has locked, and the private ones behind them."""

    def __init__(self, names, known):
        self.names = names
        self.known = known
        self.locked = 0
        self.total = 0
        self.base = None
        self.hit = (0, 0)


class NaiveCache:
    """Page sets by name, where a page's name is its chain of block ids and its place in the last one."""

    def __init__(self, page, block, device, host, lanes, policy):
        self.page, self.per, self.size = page, max(1, block // page), max(1, page // block)
        self.lanes = lanes
        self.pages = device // page // lanes * lanes
        self.host_pages = host // page
        self.through = policy == "write_through"
        self.device = {}  # page name -> True
        self.host = {}
        self.touched = {}  # node name -> when
        self.bases = {}  # first key of a chain -> lane
        self.holds = []
        self.clock = count(1)

    def open(self, blocks, known_tokens):
        """A request that holds nothing yet."""
        size = self.size
        keys = [tuple(blocks[i : i + size]) for i in range(0, len(blocks) - size + 1, size)]
        known = known_tokens // self.page if blocks else 0
        names = [(tuple(keys[: p // self.per + 1]), p % self.per) for p in range(known)]
        return NaiveHold(names, known)

    def lane(self, name):
        """The lane that owns a page."""
        chain, offset = name
        return (self.bases[chain[0]] + (len(chain) - 1) * self.per + offset) % self.lanes

    def locked(self):
        """Every page some request has locked."""
        return {name for hold in self.holds for name in hold.names[: hold.locked]}

    def free_lanes(self):
        """Free pages of each lane."""
        left = [self.pages // self.lanes] * self.lanes
        for name in self.device:
            left[self.lane(name)] -= 1
        for hold in self.holds:
            for page in range(hold.locked, hold.total):
                left[(hold.base + page) % self.lanes] -= 1
        return left

    def evictable_lanes(self):
        """Pages of each lane that nobody has locked."""
        locked = self.locked()
        found = [0] * self.lanes
        for name in self.device:
            if name not in locked:
                found[self.lane(name)] += 1
        return found

    def match(self, hold, tokens):
        """Device hit, its unlocked part, host hit, resident pages behind the device hit, and the chain's lane."""
        limit = min((tokens - 1) // self.page, hold.known)
        names = hold.names[:limit]
        device = 0
        while device < limit and names[device] in self.device:
            device += 1
        locked = self.locked()
        unlocked = sum(name not in locked for name in names[:device])
        host = device
        while host < limit and names[host] in self.host:
            host += 1
        resident = sum(name in self.host and name not in self.device for name in names[device:])
        hold.hit = (device, host - device if self.host_pages else 0)
        first = self.bases.get(names[0][0][0]) if names and self.exists(names[0][0][:1]) else None
        return device, unlocked, hold.hit[1], resident if self.host_pages else 0, first

    def exists(self, chain):
        """Whether any tier holds something of a chain."""
        return any(name[0][: len(chain)] == chain for name in [*self.device, *self.host])

    def touch(self, hold, pages):
        """Touch the blocks of the first pages, root to leaf."""
        for name in hold.names[:pages]:
            self.touched[name[0]] = next(self.clock)

    def leaves(self, tier, barred):
        """Names of last pages of nodes below which the tier holds nothing, least recently touched first."""
        last = {}
        for chain, offset in tier:
            last[chain] = max(offset, last.get(chain, -1))
        parents = {chain[:-1] for chain in last}
        found = [(chain, offset) for chain, offset in last.items() if chain not in parents]
        found = [name for name in found if name not in barred]
        return sorted(found, key=lambda name: self.touched[name[0]])

    def evict_one(self):
        """Evict the last page of the least recently touched device leaf."""
        victim = self.leaves(self.device, self.locked())[0]
        if not self.through:
            for offset in range(victim[1] + 1):
                if not self.copy((victim[0], offset)):
                    break
        del self.device[victim]
        self.forget()

    def copy(self, name):
        """Copy one page to the host if there is room or can be made."""
        if name in self.host:
            return True
        if not self.host_pages:
            return False
        if len(self.host) >= self.host_pages:
            on_device = {chain for chain, _ in self.device}
            barred = {(chain, offset) for chain, offset in self.host if chain in on_device}
            leaves = self.leaves(self.host, barred)
            if not leaves:
                return False
            del self.host[leaves[0]]
            self.forget()
        self.host[name] = True
        return True

    def forget(self):
        """Chains with nothing left lose their lane."""
        for key in [key for key in self.bases if not self.exists((key,))]:
            if not any(hold.locked and hold.names[0][0][0] == key for hold in self.holds):
                del self.bases[key]

    def settle(self):
        """Evict until no lane is overdrawn; the pages evicted."""
        evicted = 0
        while any(left < 0 for left in self.free_lanes()):
            self.evict_one()
            evicted += 1
        return evicted

    def load(self, hold):
        """Bring the host hit to the device, all or none."""
        device, host = hold.hit
        free, evictable = self.free_lanes(), self.evictable_lanes()
        locked = self.locked()
        own = [name for name in hold.names[:device] if name not in locked]
        for name in own:
            evictable[self.lane(name)] -= 1
        if host > sum(free) + sum(evictable):
            return HostHit.ALLOCATOR, 0
        need = [0] * self.lanes
        for name in hold.names[device : device + host]:
            need[self.lane(name)] += 1
        if any(n > f + e for n, f, e in zip(need, free, evictable, strict=True)):
            return HostHit.OWNER_LANE, 0
        for name in hold.names[device : device + host]:
            self.device[name] = True
        guard = NaiveHold(hold.names, hold.known)
        guard.locked = guard.total = device + host
        self.holds.append(guard)
        evicted = self.settle()
        self.holds.remove(guard)
        hold.hit = (device + host, 0)
        return HostHit.LOADED, evicted

    def commit(self, hold):
        """Lock the hit."""
        hold.locked = hold.total = hold.hit[0]
        if hold.locked:
            self.touch(hold, hold.locked)
            hold.base = self.bases[hold.names[0][0][0]]
        elif hold.names and self.exists(hold.names[0][0][:1]):
            hold.base = self.bases[hold.names[0][0][0]]
        else:
            free = self.free_lanes()
            hold.base = free.index(max(free))
        self.holds.append(hold)

    def grow(self, hold, more):
        """Take private pages."""
        hold.total += more
        self.settle()

    def insert(self, hold, tokens):
        """Make computed pages a prefix."""
        whole = min(tokens // self.page, hold.known)
        if whole <= hold.locked:
            return
        key = hold.names[0][0][0]
        if not hold.locked and self.exists((key,)) and self.bases[key] != hold.base:
            return
        self.bases[key] = hold.base
        fresh = [name for name in hold.names[hold.locked : whole] if name not in self.device]
        old = {name[0] for name in [*self.device, *self.host]}
        for name in hold.names[hold.locked : whole]:
            self.device[name] = True
            if name[0] not in old:
                self.touched[name[0]] = next(self.clock)
        hold.locked = whole
        self.touch(hold, whole)
        if self.through:
            for chain in dict.fromkeys(chain for chain, _ in fresh):
                parent_whole = len(chain) == 1 or all((chain[:-1], o) in self.host for o in range(self.per))
                for offset in range(self.per):
                    if not (parent_whole and (chain, offset) in self.device and self.copy((chain, offset))):
                        break

    def release(self, hold, tokens):
        """Let go of everything."""
        self.insert(hold, tokens)
        if hold.locked:
            self.touch(hold, hold.locked)
        self.holds.remove(hold)
        hold.locked = hold.total = 0
        self.forget()


def check_books(cache: PrefixCache, naive: NaiveCache) -> None:
    """The fast cache's running numbers are what the reference counts, and add up, in every lane."""
    pool = cache.pool
    assert pool.free >= 0
    assert pool.evictable >= 0
    assert cache._host.free == naive.host_pages - len(naive.host) >= 0
    assert pool.free == sum(naive.free_lanes())
    assert pool.evictable == sum(naive.evictable_lanes())
    if pool.lanes > 1:
        assert pool.lane_free == naive.free_lanes()
        assert pool.lane_evictable == naive.evictable_lanes()
        assert min(pool.lane_free) >= 0
    locked = len(naive.locked() & set(naive.device))
    private = sum(hold.total - hold.locked for hold in naive.holds)
    assert pool.free + pool.evictable + locked + private == pool.pages
