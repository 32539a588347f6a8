"""All temporary buffers of a prefill batch, in the order of the fact sheet's sections 3 to 9."""

from estimator.buffer import Buffer
from estimator.buffers_attention import ATTENTION
from estimator.buffers_batch import METADATA, SCHEDULE, SHARDED
from estimator.buffers_index import INDEX
from estimator.buffers_output import OUTPUT, TRANSFER

BUFFERS: dict[str, Buffer] = {
    buffer.name: buffer
    for section in (SCHEDULE, METADATA, SHARDED, INDEX, ATTENTION, OUTPUT, TRANSFER)
    for buffer in section.buffers
}

# The groups a record keeps, each the bytes its buffers hold at the peak; `margin` is what the safety factor adds.
PARTS: tuple[str, ...] = (
    "metadata",
    "scores",
    "index_gather",
    "topk",
    "attention",
    "mlp",
    "logits",
    "transfer",
    "other",
    "margin",
)
