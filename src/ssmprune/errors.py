"""The one exception a user is meant to meet."""


class InputError(ValueError):
    """Something handed to ssmprune cannot be used; the message says what was expected, what came, what to do.

    The command line prints the message alone and exits with code 2.
    """
