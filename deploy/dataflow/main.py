"""What the Flex Template's launcher runs: `recordmill convert` with the template's parameters.

The launcher passes every parameter as --name=value, also those that are switches, and its own
--template_location: Beam writes the job there, and the launcher starts it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from deploy.dataflow.metadata import flags, is_switch, opposite_of

_IMAGE_FLAG = "--sdk_container_image="


def command(parameters: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Returns the arguments of `recordmill` for what the launcher passes.

    Args:
        parameters: as --name=value.
        environment: the container's; RECORDMILL_IMAGE names the image that it was built as.

    Raises:
        ValueError: for a switch that is neither true nor false.
    """
    arguments = ["convert", *_switched(parameters)]
    image = environment.get("RECORDMILL_IMAGE")
    if image and not any(argument.startswith(_IMAGE_FLAG) for argument in arguments):
        arguments.append(_IMAGE_FLAG + image)
    return arguments


def _switched(parameters: Sequence[str]) -> Iterator[str]:
    """Yields the parameters, switches as they stand on a command line: alone, or not at all."""
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
