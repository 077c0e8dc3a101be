"""A judge for trials, of the standard library: it serves the chat protocol, and grades by words.

python examples/fake_judge.py 8001    # then base_url="http://127.0.0.1:8001/v1"

``serve()`` starts it in the background of a Python process and returns its address.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def answer(question: str, model: str) -> str:
    """Returns its answer. The graded text is the line after the last colon."""
    *_, before, text = (part.partition("\n")[0] for part in f": {question}".split(": "))
    if "[[A]]" in question:  # which is better, by the lines after the last two colons
        return "[[A]]" if len(before) > len(text) else "[[B]]" if len(before) < len(text) else "[[C]]"
    if "criterion" in question:  # a rubric: in JSON, the length of each criterion's name
        named = re.findall(r"^(?:- )?(\w+): ", question.partition("criterion")[2], re.MULTILINE)
        return json.dumps({name: {"reason": "It is so.", "score": len(name)} for name in named})
    words = len(text.split())
    score = words * (2 if model == "large" else 1)
    if words >= 10:
        return "Too long for me"
    return f"<score>{score}</score>" if "<score>" in question else f"Score: {score}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "messages" in body:
            question = next(message["content"] for message in body["messages"] if message["role"] == "user")
            token = {"token": "Yes", "logprob": -0.1}
            choice = {
                "message": {"role": "assistant", "content": answer(question, body["model"])},
                "logprobs": {"content": [{**token, "top_logprobs": [token]}]},
            }
            used = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 500}}
            found = {"model": body["model"], "choices": [choice], "usage": used}
        else:  # a reward service: is the query the label?
            found = {"rewards": [float(one == other) for one, other in zip(body["query"], body["label"], strict=True)]}
        text = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None: ...


class Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


def serve(port: int = 0) -> str:
    """Starts the judge, by default on any free port, until this process ends, and returns its
    address."""
    server = Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


if __name__ == "__main__":
    print(f"a judge at {serve(int(sys.argv[1]) if sys.argv[1:] else 8001)}/v1, until Ctrl-C", flush=True)
    threading.Event().wait()
