"""Seeded disasters: a query without Spark, under everything that can go wrong, against brute force.

    schedule   what happens, as a value: query, settings, rows, disasters; drawn from one seed
    drawing    draws it
    query      the operators of a schedule
    store      simulated durable storage: a disk that forgets what was not synced, or an object store
    gate       where disasters strike: every call to the store
    spark      simulated Spark: tasks that are repeated, reports that are lost, sinks that misbehave
    outside    Spark's offsets and the sink's files, which a loss of power may reach
    driver     one start of the query
    baton      a driver that is paused and goes on later, next to its successor
    ledger     what every step was given and gave
    world      runs a schedule
    checkers   what must be true, apart from the world
    shrink     makes a failing schedule small
    running    runs many schedules
    report     seeds run, disasters by kind, rows compared, differences

`spillway chaos --seed N` runs one; `docs/reliability.md` says what this shows.
"""
