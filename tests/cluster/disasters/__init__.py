"""Real disasters, drawn from a seed: what a query does, and what is done to its processes.

    stories     a seed becomes lives, with settings drawn anew, and strikes at their processes
    play        runs a story with real processes, and compares what is left with the batch query

A seed decides all but the moments: how far a query is when a strike falls depends on the machine.
"""
