"""Variable references in commands, arguments and environment values.

docs/behaviour/runtime.md, "Expansion": one pass, ``$(NAME)`` and ``$$`` only.
"""

from __future__ import annotations

from collections.abc import Callable


def expand(text: str, lookup: Callable[[str], str | None]) -> str:
    """Replace references to variables.

    ``$(NAME)`` becomes the value of a known variable and stays as it is otherwise; ``$$``
    becomes ``$``, so ``$$(NAME)`` gives the literal ``$(NAME)``. Everything else, values
    that were put in included, stays byte for byte.

    Args:
        text: what to expand.
        lookup: the value of a variable, None when there is none of that name.
    """
    out: list[str] = []
    position = 0
    while True:
        dollar = text.find("$", position)
        if dollar < 0 or dollar + 1 == len(text):
            out.append(text[position:])
            return "".join(out)
        out.append(text[position:dollar])
        following = text[dollar + 1]
        position = dollar + 2
        if following == "$":
            out.append("$")
        elif following == "(" and (end := text.find(")", position)) >= 0:
            value = lookup(text[position:end])
            out.append(text[dollar : end + 1] if value is None else value)
            position = end + 1
        else:
            out.append("$" + following)
