"""Seeded disasters strike a query without Spark; its results are compared with brute force.

    schedule   what happens, as a value: query, settings, rows, disasters; drawn from one seed
    drawing    draws it
    query      the operators of a schedule
    store      simulated durable storage: a disk that loses unsynced files, or an object store
    gate       where disasters strike: every call to the store
    spark      simulated Spark: repeated tasks, lost reports, sinks that misbehave
    outside    Spark's offsets and the sink's files, which a loss of power may reach
    driver     one start of the query
    baton      pauses a driver and resumes it later, while its successor works
    ledger     the input and output of every step
    world      runs a schedule
    checkers   check what must be true; separate from the world
    shrink     reduces a failing schedule
    running    runs many schedules
    report     seeds run, disasters by kind, rows compared, differences

`spillway chaos --seed N` runs one; `docs/reliability.md` says what this shows.
"""
