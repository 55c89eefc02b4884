"""`spillway dashboard`: the past of a checkpoint as a page, and commits as they come."""

from __future__ import annotations

from typing import Annotated

import typer

from spillway.cli.output import JsonOption, console_for, emit_json, guarded


def dashboard(
    checkpoint: Annotated[str, typer.Argument(help="The checkpointLocation of a query.")],
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    name: Annotated[
        list[str] | None, typer.Option(help="Another name of the server, behind a proxy.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Show what the log of a checkpoint says as a page, until interrupted.

    The query may be running: the command locks nothing and changes nothing, and the page follows its
    commits. For batch phases, slots at work and commands, open query.dashboard() in its program.
    With --json, print what the page would show, and exit.
    """
    from spillway.cli.waiting import until_interrupted
    from spillway.codec import plain
    from spillway.dashboard.feed.feed import Feed
    from spillway.dashboard.feed.past import Past, about_of
    from spillway.dashboard.server.serving import Dashboard
    from spillway.inspect.stages import inspect_stages

    with guarded(json_output):
        stages = inspect_stages(checkpoint)
        past = Past(about_of(stages), [stage.location for stage in stages])
        if json_output:
            emit_json(plain(past.look(watched=True)))
            return
        with Dashboard(Feed(), port=port, host=host, names=name or (), producer=past) as opened:
            console_for(json_output).print(f"dashboard: {opened.url} (Ctrl-C ends it)")
            until_interrupted()
