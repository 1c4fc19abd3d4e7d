"""Lets `python -m ssmprune` do what `ssmprune` does."""

from .cli import main

main()
