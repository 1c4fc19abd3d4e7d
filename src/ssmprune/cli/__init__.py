"""The command line: a verb is a function that takes a dataclass of options and returns a `Report`.

`verbs` puts them under headings, runs them and has the options of all commands. `pruning` has inspect, prune and
recover, `deploying` quantize, export and deploy; `training` has train and evaluate, `sweeping` sweep, report and demo,
`importing` import and list. `options` has what several commands share, `output` what they print.
"""

from .verbs import app, main, run

__all__ = ["app", "main", "run"]
