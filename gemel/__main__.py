"""`python -m gemel`: run MXNet programs, launch workers and servers, plan over topologies."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from gemel import __version__, config
from gemel.errors import GemelError

DESCRIPTION = """\
gemel run executes a program or notebook written for MXNet, unchanged: `import mxnet` gives gemel.

  python -m gemel run train.py --epochs 3
  python -m gemel run chapter.ipynb

A notebook runs cell by cell. Each cell's output and the value of its last line are printed.
Variables like GEMEL_SIMULATED_GPUS are read before the program starts: it is too late to set them
in os.environ there.

gemel launch starts several workers that train together (kvstore='dist_sync'), over MPI or, with
--servers, through parameter servers. gemel serve runs one parameter server.

  python -m gemel launch -n 4 train.py --epochs 3
  python -m gemel launch --hosts alpha,beta train.py
  python -m gemel launch --servers 2 --workers 3 train.py

gemel topology shows how to sum gradients over given links, and how long that takes.

  python -m gemel topology --explain p3
"""


def main(arguments: list[str]) -> int:
    """Run the command line and return the exit status."""
    parser, commands = _parsers(arguments)
    if arguments[:1] == ["topology"]:
        return _topology(commands["topology"], arguments[1:])
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 2
    if given.command == "serve":
        from gemel.kvstore.server.commands import run_serve

        return run_serve(given)
    if given.command == "launch":
        return _launch(given, commands["launch"])
    from gemel.command import running  # imported here because help does not need it

    return running.run(given.file, given.arguments)


def _parsers(
    arguments: list[str],
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser of the command line, and that of each command. `topology` adds its own arguments,
    and those of servers are added only where `arguments` are for them."""
    parser = argparse.ArgumentParser(
        "python -m gemel",
        description=DESCRIPTION,
        epilog="environment variables, with their defaults:\n\n" + config.describe(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gemel {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    run = commands.add_parser("run", help="run a Python script or notebook with gemel as mxnet")
    run.add_argument("file", help="script.py or notebook.ipynb")
    launch = commands.add_parser("launch", help="run a Python script in several worker processes")
    launch.add_argument(
        "-n",
        "--workers",
        type=int,
        help="number of workers (default: one on each host; with --servers one)",
    )
    launch.add_argument(
        "--hosts", default="", help="hosts, separated by commas; workers are placed on them in turn"
    )
    launch.add_argument(
        "--timeout", type=float, help="seconds that workers wait for each other (300)"
    )
    serve = commands.add_parser("serve", help="run a parameter server")
    planned = commands.add_parser(
        "topology", help="list topologies and plan gradient sums over them"
    )
    if arguments[:1] in (["launch"], ["serve"]):
        from gemel.kvstore.server.commands import launch_arguments, serve_arguments

        launch_arguments(launch)
        serve_arguments(serve)
    launch.add_argument("file", help="script.py")
    for command in (run, launch):
        own = command.add_argument(
            "arguments", nargs=argparse.REMAINDER, help="arguments of the program"
        )
        own.required = False  # before Python 3.12 the default was True
    return parser, {"run": run, "launch": launch, "serve": serve, "topology": planned}


def _launch(given: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Start the workers, and the servers if there are some; return the exit status."""
    from gemel.command import launching

    if given.servers:
        from gemel.kvstore.server.commands import run_launch

        return run_launch(given, given.file, given.arguments)
    hosts = [host for host in given.hosts.split(",") if host]
    if given.engine != "local":
        parser.error(f"--engine {given.engine} starts servers and workers: say how many servers")
    if given.for_servers:
        parser.error(f"{given.for_servers} is for jobs with servers: say how many with --servers")
    workers = given.workers if given.workers is not None else len(hosts)
    if not workers and given.workers is None:
        parser.error("say how many workers: -n 4, or --hosts alpha,beta for one on each")
    try:
        return launching.launch(given.file, given.arguments, workers, hosts, given.timeout)
    except GemelError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2


def _topology(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    from gemel.topology import command  # imported here because other commands do not need it

    parser.description = command.DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    command.add_arguments(parser)
    try:
        status = command.run(parser.parse_args(arguments))
        sys.stdout.flush()
    except GemelError as error:
        parser.error(str(error))
    except BrokenPipeError:  # as in `python -m gemel topology | head`: nobody reads the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
