"""What each command does, between the parsed words and the printed answer."""


class CommandError(Exception):
    """The command cannot do what was asked; one sentence for the person. The exit status is 1."""
