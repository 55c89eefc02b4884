"""How many bytes of rows may be together in memory.

Arrow counts the bytes of text, binary and lists in 32 bits. A column with 2 GiB or more does not fit:
Arrow splits it, or fails. So no code in the package assumes that a column fits:

    JOINED_BYTES   rows in one Arrow batch. Rows beyond it become several batches, or get 64-bit
                   offsets where one batch is needed (rows/joining.py). A run file never has more.
    STEP_BYTES     rows that one step reads: a merge, a spill, cleanup, staged rows
    BLOCK_BYTES    rows of one result block, and of pairs that a predicate tests (rows/cutting.py)

Each bound has one exception: a single row is never cut. Spark itself limits a row to 2 GiB.

Readers use the names of this module (`bounds.STEP_BYTES`), so a test that sets them small crosses
every bound with few rows.
"""

from __future__ import annotations

#: An eighth of what 32-bit offsets can count, so that a few copies together still fit.
JOINED_BYTES = 256 << 20
#: One merge step of 64 MiB takes 50 to 100 ms.
STEP_BYTES = 64 << 20
#: Larger than any block of narrow rows: 65,536 rows of 512 bytes.
BLOCK_BYTES = 32 << 20
