"""What the page says of PSP's figures together, and of those whose claim does not hold."""

from __future__ import annotations

PSP_REAL_HEAD = """# PSP, on Spark

PSP and its two rivals as distributions of one operator, on small rings. Longer ones are simulated below.
"""

PSP_HEAD = """# PSP, simulated

PSP was measured on a cluster of 20 machines. Here its ring and its two rivals are simulated, message by
message, with the probe orders, the cost model and the slicing policies of a query.

- **Join** (PSP 8.1, 8.2): three streams of 50 rows a second each at Poisson times, windows of 10 s,
  600 s of virtual time from empty states, 4 to 19 slots.
- **Costs**, of which the paper gives none: 30 µs for a pair, which is a nanosecond for each byte of two
  images of 10,000 pixels; 10 µs for receiving a row and passing it on; 70 µs on the way to the next
  slot, a packet's latency as FLUX has it. A row is passed on as its packets come: if each slot waited
  for all of its 30 kB, a hop of a gigabit link would be 310 µs, and a ring that has one row at a time
  would fall behind at every length.
- **Selectivity** is taken for the partners that a row finds in a window on average. As a part of all
  pairs, which is how section 5 of the paper has it, 0.5 would be 9.4 million results a second, more
  than a gigabit link carries to the master that collects them.
- **Response** is from when a row comes to when a result of it is there, on average over the results. It
  has the wait before the ring in it. Matches are drawn at random (8.2).
- **Checked** in every run: each row meets all rows of its windows, in every step (ATR: in the first),
  and none twice.
- **Not modelled** are threads, garbage collection, and the transport of results to the master.
"""

#: Why a claim did not hold, found by looking at the data.
PSP_NOTES: dict[str, str] = {
    "psp-8a": "A ring can be too long, and which length is best is near what the paper found. But "
    "it is "
    "not longer for smaller selectivities. More matches are more work to share, so they want more "
    "slots, "
    "not fewer: Equation 5 itself, with which the paper explains its expectation, has a best "
    "length that "
    "grows with the selectivity. What a slot has to pass on for a row is the same in a ring of any "
    "length, "
    "so more partial combinations do not make a long ring worse. A network that all slots share would: "
    "it carries them once for each slot. Links here are from slot to slot, and no row waits for "
    "another "
    "on them; Equation 6 asks for a quarter of a gigabit with 14 slots.",
}
