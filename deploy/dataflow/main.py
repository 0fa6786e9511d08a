"""Entry point of the Flex Template: runs `recordmill convert` with the parameters of the template.

The launcher passes every parameter, switches included, as --name=value, and adds
--template_location: Beam writes the job there, and the launcher starts it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from deploy.dataflow.metadata import flags, is_switch, opposite_of

_IMAGE_FLAG = "--sdk_container_image="


def command(parameters: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Returns the arguments of `recordmill` for the arguments of the launcher.

    Args:
        parameters: of the template, as --name=value.
        environment: of the container; RECORDMILL_IMAGE is the name of its image.

    Raises:
        ValueError: for a switch that is neither true nor false.
    """
    arguments = ["convert", *_switched(parameters)]
    image = environment.get("RECORDMILL_IMAGE")
    if image and not any(argument.startswith(_IMAGE_FLAG) for argument in arguments):
        arguments.append(_IMAGE_FLAG + image)
    return arguments


def _switched(parameters: Sequence[str]) -> Iterator[str]:
    """Yields the parameters, with switches in the form of a command line: a flag without value."""
    switches = {name for name, flag in flags().items() if is_switch(flag)}
    for parameter in parameters:
        flag, _, value = parameter.partition("=")
        name = flag.removeprefix("--")
        if name not in switches:
            yield parameter
        elif value.lower() == "true":
            yield flag
        elif value.lower() != "false":
            raise ValueError(f"{parameter}: expected true or false")
        elif opposite_of(name) in switches:
            yield f"--{opposite_of(name)}"


if __name__ == "__main__":
    from recordmill.__main__ import main

    sys.argv[1:] = command(sys.argv[1:], os.environ)
    sys.exit(main())
