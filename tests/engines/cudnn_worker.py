"""A process of its own for the cuDNN engine on the mock driver, which must not meet a real one.

Reads the names of scenarios, one a line, and answers each with one line of JSON.
"""

from __future__ import annotations

import json
import sys
import traceback

from engines import cudnn_scenarios
from engines.cudnn_mock import Mock


def main() -> None:
    """Run scenarios as they are asked for."""
    mock = Mock(sys.argv[1])
    for line in sys.stdin:
        name = line.strip()
        try:
            mock.reset()
            getattr(cudnn_scenarios, name)(mock)
            answer = {"passed": True}
        except BaseException:  # the other process raises it
            answer = {"passed": False, "traceback": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
