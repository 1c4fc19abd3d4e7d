"""Lets `python -m ssmprune` do what `ssmprune` does."""

from .cli import main

if __name__ == "__main__":
    main()
