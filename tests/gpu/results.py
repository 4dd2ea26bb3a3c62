"""How a check tells run.py what it has found: a line of JSON on standard output, between whatever else it prints."""
import json
import os

MARK = "@gpu "
PASS, FAIL, NOT_RUN, YES, NO, INFO = "PASS", "FAIL", "NOT RUN", "yes", "no", "info"


ROUTE = "GOCCL_CUDA_ROUTE"


def of_route(name: str, route: str = "") -> str:
    """Returns the name of a bar for calls by a route, or by the one that is set. That of the staged route has none."""
    route = route or os.environ.get(ROUTE, "")
    return f"{name}, route {route}" if route not in ("", "staged") else name


def tell(name: str, result: str, text: str, **numbers: object) -> None:
    print(MARK + json.dumps({"name": name, "result": result, "text": text, "numbers": numbers}), flush=True)


def told(output: str) -> list[dict]:
    """Returns what the lines of an output tell."""
    return [json.loads(line[len(MARK):]) for line in output.splitlines() if line.startswith(MARK)]
