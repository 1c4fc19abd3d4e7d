"""The command line: one verb is one function, which takes a dataclass of options and returns a `Report`.

`verbs` puts them under headings and has the options of every command. `pruning` has inspect, prune and recover,
`deploying` quantize, export and deploy, `deciding` what prune and deploy share; `training` has train and evaluate,
`sweeping` sweep, report and demo, `importing` import and list. `options` has what several commands share, `output` what
they print.
"""

from .verbs import app, main, run

__all__ = ["app", "main", "run"]
