"""`python -m gemel`: run programs written for MXNet as they are; start jobs of many processes."""

from __future__ import annotations

import argparse
import sys

DESCRIPTION = """\
gemel run executes a program or a notebook written for MXNet as it is: `import mxnet` means gemel.

  python -m gemel run train.py --epochs 3
  python -m gemel run chapter.ipynb

A notebook runs cell by cell; what its cells print and the values of their last lines are printed.

gemel launch starts a program as several workers, with parameter servers between them; gemel serve
starts one such server. docs/parameter-server.md says more.

  python -m gemel launch --servers 2 --workers 3 train.py
"""


def main(arguments: list[str]) -> int:
    """What the command line asks for; gives the exit status."""
    parser = argparse.ArgumentParser(
        "python -m gemel",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="command")
    run = commands.add_parser("run", help="run a Python script or a notebook, mxnet being gemel")
    run.add_argument("file", help="script.py or notebook.ipynb")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own")
    serve = commands.add_parser("serve", help="be a parameter server")
    launch = commands.add_parser("launch", help="start workers and parameter servers")
    if arguments[:1] == ["serve"] or arguments[:1] == ["launch"]:
        return many(parser, serve, launch, arguments)
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 2
    from gemel import running  # imported here: help needs none of it

    return running.run(given.file, given.arguments)


def many(
    parser: argparse.ArgumentParser,
    serve: argparse.ArgumentParser,
    launch: argparse.ArgumentParser,
    arguments: list[str],
) -> int:
    """A job of many processes; gives the exit status."""
    from gemel.kvstore.server import commands  # imported here: running programs needs none of it

    commands.serve_arguments(serve)
    commands.launch_arguments(launch)
    launch.add_argument("file", help="script.py")
    launch.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own")
    given = parser.parse_args(arguments)
    if given.command == "serve":
        return commands.run_serve(given)
    return commands.run_launch(given, given.file, given.arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
