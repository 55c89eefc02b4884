"""A query without Spark: the product's coordinator, slots, protocols and checkpoint on lists of rows.

    rows       rows, and what an operator under test is
    joins      n-way joins, join trees, joins with predicates, each with its brute-force oracle
    grouping   group-by, windows and dedup, with theirs
    sliced     the time-sliced join, with its
    told       policies that decide what a script says
    sizes      limits of the product, made so small that a few rows cross them
    places     machines: their tiers in memory
    host       the coordinator's host: a checkpoint, and state that travels when told to
    stages     slots that run the product's slot code
    engine     evaluates stages like Spark: lazily, in tasks, again for every read of the sink

The property tests (`tests/property/law`) and the chaos harness (`testing/chaos`) share it.
"""
