"""An engine's prefill step written down a second time: tensors made and freed in order, their bytes tracked.

Shares nothing with the estimator: it reads a Hugging Face config and plain settings, and knows shapes, not formulas.
"""

from math import prod

MIXED_SLICE = 131072


class Tape:
    """Makes and frees tensors that are only sizes, and remembers the most that was alive at once."""

    def __init__(self):
        self.live = 0
        self.peak = 0

    def new(self, *shape, item):
        """A tensor of this shape with `item` bytes an element."""
        size = prod(shape) * item
        self.live += size
        self.peak = max(self.peak, self.live)
        return size

    def free(self, *tensors):
        """Let go of tensors."""
        self.live -= sum(tensors)


def align(value, unit):
    """The next multiple of `unit`."""
    return (value + unit - 1) // unit * unit


class Step:
    """One prefill of a batch on one rank: its row counts, then its tensors."""

    def __init__(self, config, run, requests, rank):
        self.config, self.run, self.requests = config, run, requests
        self.tape = Tape()
        self.shared = []  # top-k results that layers hand on
        self.fed = 0
        self.tp, self.cp = run["tp"], run.get("cp", 1)
        self.extends = [extend for _, extend in requests]
        self.prefixes = [prefix for prefix, _ in requests]
        self.contexts = [prefix + extend for prefix, extend in requests]
        self.tokens = sum(self.extends)
        owner = self._owners()
        self.split = owner is not None
        if owner is None:
            self.rows = self.padded = self.longest = self.tokens
            self.here = list(range(len(requests)))
        else:
            counts = [owner.count(each) for each in range(self.cp)]
            self.rows, self.longest = counts[rank], max(counts)
            self.padded = align(self.longest, self.cp if config.get("index_topk") else 2 * self.cp)
            request_of = [index for index, extend in enumerate(self.extends) for _ in range(extend)]
            self.here = sorted({request_of[j] for j, each in enumerate(owner) if each == rank})
            if not config.get("index_topk"):
                self.here = list(range(len(requests)))
        self.contexts_here = [self.contexts[index] for index in self.here]

    def _owners(self):
        """The rank of every token of the batch, or None where it is not split."""
        if self.cp == 1:
            return None
        if self.config.get("index_topk"):
            return [j % self.cp for j in range(self.tokens)]
        blocks = 2 * self.cp
        if min(self.extends) < blocks:
            return None
        owner = []
        for extend in self.extends:
            for block in range(blocks):
                length = extend // blocks + (block < extend % blocks)
                owner += [min(block, blocks - 1 - block)] * length
        return owner

    def prefill(self):
        """Run the step; the answer is the most bytes that were alive."""
        new, free, config = self.tape.new, self.tape.free, self.config
        count, hidden = len(self.requests), config["hidden_size"]
        for _ in range(2):  # this batch and the one before it, which the overlap scheduler still holds
            new(self.tokens, item=8)
            new(count, item=48)
        new(self.tokens, item=8)
        new(self.tokens, item=8)
        if self.cp > 1:
            new(2, self.padded, item=8)
        self._build_metadata()
        if self.split:
            whole = new(self.tokens, hidden, item=2)
            local = new(self.padded, hidden, item=2)
            free(whole, local)
        else:
            free(new(self.tokens, hidden, item=2))
        for _ in range(2):
            stream = [new(self.padded, hidden, item=2) for _ in range(2)]
            if "kv_lora_rank" in config:
                self._latent_attention()
            else:
                self._grouped_attention()
            self._feed_forward()
            free(*stream, *self.shared[:-1])
            self.shared = self.shared[-1:]
        free(*self.shared)
        if self.split:
            parts = [new(self.padded, hidden, item=2), new(self.cp, self.padded, hidden, item=2)]
            last = new(self.tokens, hidden, item=2)
            free(*parts)
        else:
            last = new(self.tokens, hidden, item=2)
        self._output()
        free(last)
        return self.tape.peak

    def _build_metadata(self):
        new, free, page = self.tape.new, self.tape.free, self.run["page_size"]
        count, longest = len(self.requests), max(self.contexts)
        sparse = bool(self.config.get("index_topk"))
        if sparse:
            self._build_sparse_metadata()
        if "kv_lora_rank" in self.config and any(self.prefixes):
            # Slots of the latent rows that are read back, listed once a batch.
            if sparse:
                new(sum(self.contexts) if self._short_contexts() else 0, item=4)
            elif not self.split and sum(self.prefixes) >= 8192:
                new(sum(self.contexts if sum(self.contexts) <= MIXED_SLICE else self.prefixes), item=4)
        if self.run["prefill_impl"] == "fa3":
            wide = new(count, longest, item=4)
            if page > 1:
                new(count, -(-longest // page), item=4)
                free(wide)
        elif self.run["prefill_impl"] == "triton":
            new(sum(self.prefixes), item=8)

    def _build_sparse_metadata(self):
        new, free, page = self.tape.new, self.tape.free, self.run["page_size"]
        fp8, impl = self.run["kv_dtype"] == "fp8", self.run["prefill_impl"]
        widest = max(self.contexts_here, default=0)
        whole = new(len(self.requests), max(self.contexts), item=4) if self.cp > 1 else 0
        new(len(self.here), widest, item=4)
        new(4, self.rows, item=4)
        new(self.padded, item=4)
        new(self.padded + 1, item=4)
        full = [new(self.tokens, item=4) for _ in range(3)] if self.cp > 1 else []
        ragged = fp8 and impl == "flashmla_sparse"
        if ragged:
            new(self.rows, item=4)
        if any(self.prefixes) and (ragged or (fp8 and self._short_contexts())):
            new(sum(self.contexts_here), item=4)
        if page > 1:
            new(len(self.here), -(-widest // page), item=4)
        free(whole, *full)

    def _short_contexts(self):
        return (
            self.cp == 1
            and self.run["sm_major"] in (9, 10)
            and max(self.contexts) <= 2048
            and sum(self.contexts) <= MIXED_SLICE
        )

    def _latent_attention(self):
        new, free, config = self.tape.new, self.tape.free, self.config
        heads = config["num_attention_heads"] // self.tp
        nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
        width = config["kv_lora_rank"] + rope
        projected = [new(self.padded, config["q_lora_rank"] + width, item=2)]
        low = new(self.padded, config["q_lora_rank"], item=2)
        projected.append(new(self.padded, heads, nope + rope, item=2))
        kept = []
        sparse = bool(config.get("index_topk"))
        if self.cp > 1:
            item = 1 if self.run["kv_dtype"] == "fp8" and self.run["prefill_impl"] == "trtllm" else 2
            rows = self.padded if sparse else self.longest
            if self.split:
                kept = [new(rows, width, item=item), new(self.cp, rows, width, item=item)]
                kept.append(new(self.tokens, width, item=item))
        if sparse and not self._short_contexts():
            chosen = self._index()
            free(low)
            self._sparse_attention(heads, width)
            if config.get("index_topk_freq", 1) > 1:
                self.shared = [*self.shared, chosen]
            else:
                kept.append(chosen)
        else:
            free(low)
            self._dense_attention(heads, nope, rope, value, width, sparse=sparse)
        free(*projected, *kept)

    def _index(self):
        new, free, config = self.tape.new, self.tape.free, self.config
        count, dim, top = config["index_n_heads"], config["index_head_dim"], config["index_topk"]
        if self.cp == 1 and max(self.contexts) <= top:
            return new(self.padded, top, item=4)
        held = [new(self.padded, count, dim, item=1), new(self.padded, count, item=4)]
        originals = [new(self.padded, count, dim, item=2), new(self.padded, count, item=4)]
        if self.cp > 1:
            gathered = new(self.cp, self.padded, dim, item=2)
            held.append(new(self.tokens, dim, item=2))
            free(gathered)
            held += originals
        else:
            free(*originals)
        columns = sum(self.contexts_here)
        held += [new(columns, dim, item=1), new(columns, 4, item=1)]
        result = new(self.padded, top, item=4)
        step = self.rows
        if self.rows * columns >= 8_000_000 and self.rows * columns * 4 > self.run["budget"]:
            step = min(self.rows, max(1, self.run["budget"] // (columns * 4)))
        paged = not (self.run["kv_dtype"] == "fp8" and self.run["prefill_impl"] == "flashmla_sparse")
        scores = chosen = 0
        for start in range(0, self.rows, step or 1):
            rows = min(step, self.rows - start)
            fresh = new(align(rows, 128 // count), align(columns + 256, 256), item=4)
            free(scores)
            scores = fresh
            table = new(rows, max(self.contexts_here), item=4) if step < self.rows and paged else 0
            picked = new(rows, top, item=4)
            free(table, chosen)
            chosen = picked
        free(*held, scores, chosen)
        return result

    def _sparse_attention(self, heads, width):
        new, free, rank = self.tape.new, self.tape.free, self.config["kv_lora_rank"]
        impl, fp8 = self.run["prefill_impl"], self.run["kv_dtype"] == "fp8"
        folded = new(self.padded, heads, rank, item=2)
        if impl == "trtllm" and fp8:
            made = [new(self.padded, heads, width, item=1)]
            out = new(self.padded, heads, rank, item=2)
        else:
            made = [new(self.padded, heads, width, item=2)]
            unit = 128 if self.run["sm_major"] >= 10 and impl == "flashmla_sparse" else 64
            padded = align(heads, unit)
            if padded != heads:
                made.append(new(self.padded, padded, width, item=2))
            if impl == "flashmla_sparse" and fp8:
                made.append(new(sum(self.contexts_here) if any(self.prefixes) else self.tokens, width, item=2))
            out = new(self.padded, padded, rank, item=2)
            made += [new(self.padded, padded, item=4) for _ in range(2 if impl == "flashmla_sparse" else 1)]
        free(*made)
        self._project(heads, folded, out)

    def _project(self, heads, folded, out):
        """Unfold the output from the latent space, project it, and let go of the kernel's operands."""
        values = self.tape.new(self.padded, heads, self.config["v_head_dim"], item=2)
        projected = self.tape.new(self.padded, self.config["hidden_size"], item=2)
        self.tape.free(values, projected, folded, out)

    def _dense_attention(self, heads, nope, rope, value, width, *, sparse):
        new, free, hidden = self.tape.new, self.tape.free, self.config["hidden_size"]
        prefix, total = sum(self.prefixes), sum(self.contexts)
        if self.split or (not sparse and 0 < prefix < 8192):
            rank = self.config["kv_lora_rank"]
            folded, out = new(self.padded, heads, rank, item=2), new(self.padded, heads, rank, item=2)
            free(new(self.padded, heads, item=4))
            self._project(heads, folded, out)
        elif sparse or total <= MIXED_SLICE:
            latent = new(total, width, item=2)
            made = [new(total, heads, nope + value, item=2), new(total, heads, nope + rope, item=2)]
            free(latent)
            made.append(new(self.tokens, heads, value, item=2))
            free(new(self.tokens, heads, item=4))
            free(*made, new(self.tokens, hidden, item=2))
        else:
            made = [new(self.tokens, heads, nope + value, item=2), new(self.tokens, heads, nope + rope, item=2)]
            sums = [new(self.tokens, heads, value, item=2), new(self.tokens, heads, item=4)]
            slice_tokens = MIXED_SLICE // len(self.requests)
            for start in range(0, max(self.prefixes), slice_tokens):
                part = sum(max(0, min(each - start, slice_tokens)) for each in self.prefixes)
                latent = new(part, width, item=2)
                piece = [new(part, heads, nope + value, item=2), new(part, heads, nope + rope, item=2)]
                free(latent)
                piece += [new(self.tokens, heads, value, item=2), new(self.tokens, heads, item=4)]
                merged = [new(self.tokens, heads, value, item=2), new(self.tokens, heads, item=4)]
                free(*piece, *sums)
                sums = merged
            free(*made, *sums, new(self.tokens, hidden, item=2))

    def _grouped_attention(self):
        new, free, config = self.tape.new, self.tape.free, self.config
        heads = config["num_attention_heads"] // self.tp
        pairs = max(1, config["num_key_value_heads"] // self.tp)
        dim = config["head_dim"]
        made = [new(self.padded, heads + 2 * pairs, dim, item=2)]
        if self.split:
            made.append(new(self.longest, pairs, 2 * dim, item=2))
            made.append(new(self.cp, self.longest, pairs, 2 * dim, item=2))
            made.append(new(self.tokens, pairs, 2 * dim, item=2))
        if self.run["kv_dtype"] == "fp8":
            made += [new(self.tokens, pairs, dim, item=1), new(self.tokens, pairs, dim, item=1)]
        made.append(new(self.padded, heads, dim, item=2))
        free(*made[1:-1])
        free(made[0], made[-1], new(self.padded, config["hidden_size"], item=2))

    def _feed_forward(self):
        new, free, config = self.tape.new, self.tape.free, self.config
        hidden = config["hidden_size"]
        if "moe_intermediate_size" not in config:
            self._gated(config["intermediate_size"] // self.tp)
            free(self.fed)
            return
        chosen, inner = config["num_experts_per_tok"], config["moe_intermediate_size"] // self.tp
        experts = config["n_routed_experts"]
        self._gated(inner)
        made = [
            self.fed,
            new(self.padded, experts, item=4),
            new(self.padded, chosen, item=4),
            new(self.padded, chosen, item=4),
            new(self.padded * chosen + experts * 63, item=4),
            new(self.padded, hidden, item=1),
            new(self.padded, hidden // 128, item=4),
            new(self.padded, hidden, item=2),
        ]
        first = new(self.padded, chosen, 2 * inner, item=2)
        second = new(self.padded, chosen, inner, item=2)
        free(first)
        made += [second, new(self.padded, chosen, inner, item=1), new(self.padded, chosen, -(-inner // 128), item=4)]
        made.append(new(self.padded, chosen, hidden, item=2))
        free(*made)

    def _gated(self, inner):
        """A dense feed-forward part, or a shared expert; its output stays."""
        new, free = self.tape.new, self.tape.free
        work = new(self.padded, 2 * inner, item=2), new(self.padded, inner, item=2)
        self.fed = new(self.padded, self.config["hidden_size"], item=2)
        free(*work)

    def _output(self):
        new, free, config = self.tape.new, self.tape.free, self.config
        count, vocab = len(self.requests), config["vocab_size"]
        rows = min(self.run.get("logprob_rows", 0), self.tokens)
        if rows:
            pruned = new(rows, config["hidden_size"], item=2)
            sampled = new(count, vocab, item=4)
            chunk = min(rows, 2048)
            free(new(chunk, vocab, item=4), new(chunk, vocab, item=4))
            probs = new(count, vocab, item=4)
            free(pruned, sampled, probs)
            return
        half = new(count, vocab // self.tp, item=2)
        if self.tp > 1:
            gathered = new(count, vocab, item=2)
            ordered = new(count, vocab, item=2)
            free(gathered, half)
            half = ordered
        logits = new(count, vocab, item=4)
        free(half)
        free(logits, new(count, vocab, item=4))


def reference_peak(config, run, requests):
    """The most bytes alive at once on the fullest rank."""
    return max(Step(config, run, requests, rank).prefill() for rank in range(run.get("cp", 1)))
