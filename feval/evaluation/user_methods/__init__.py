"""Users' own methods: callables, called in this process, and methods from files, which run in a
worker process.

`calling` asks a callable, `files` names a method in a file, `process` starts its worker and ends it
at a time limit, in the surroundings of `sandbox`; `worker` is what runs there. `handing` says what
goes to it, `handed` is what it makes of that, and `messages` how it travels.
"""

from feval.evaluation.user_methods.calling import TIME_LIMIT as TIME_LIMIT
from feval.evaluation.user_methods.calling import MethodAnswer as MethodAnswer
from feval.evaluation.user_methods.calling import answers as answers
from feval.evaluation.user_methods.calling import require_arguments as require_arguments
from feval.evaluation.user_methods.files import MethodFile as MethodFile
from feval.evaluation.user_methods.files import learns as learns
