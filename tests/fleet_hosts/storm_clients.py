"""What the storm's clients ask for, what they hear, and how they come back."""
import collections
import http.client
import json
import threading
import time

from fleet import Connection, Refused

CHAT = "storm-chat"      # a model with a chat template
END_PATIENCE = 180       # after the last blow everything has ended within this
BROKEN = (OSError, http.client.HTTPException)
SCHEMA = {"type": "json_schema", "json_schema": {"name": "pet", "strict": True, "schema": {
    "type": "object", "properties": {"name": {"enum": ["Lily", "Tom", "Max"]}, "age": {"type": "integer", "minimum": 1, "maximum": 99},
                                     "likes": {"type": "array", "items": {"enum": ["cats", "cake", "rain"]}, "minItems": 3, "maxItems": 3}},
    "required": ["name", "age", "likes"], "additionalProperties": False}}}

STOPS = ["\n\n", "The end"]  # these stories have paragraphs
TOOL = {"type": "function", "function": {"name": "remember", "parameters": {
    "type": "object", "properties": {"what": {"enum": ["the cat", "a cake", "the rain"]}, "days": {"type": "array", "items": {"enum": [1, 2, 3]},
                                                                                             "minItems": 6, "maxItems": 6}},
    "required": ["what", "days"], "additionalProperties": False}}}

Kind = collections.namedtuple("Kind", "name path body")


def kinds():
    """What is asked for; each with a few seeds, so that the answers are known beforehand."""
    chat = {"messages": [{"role": "user", "content": "Tell me a story about a cat."}], "temperature": 0.9}
    for seed in (1, 2):
        for tokens in (15, 180):
            story = {"model": "builtin", "prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0.8, "seed": seed}
            yield Kind(f"execute {seed}/{tokens}", "/v2/tasks", story)
        yield Kind(f"chat {seed}", "/v2/tasks", {"model": CHAT, "kind": "chat", "request": {**chat, "max_tokens": 90, "seed": seed}})
        yield Kind(f"schema {seed}", "/v2/tasks", {"model": CHAT, "kind": "chat",
                                                  "request": {**chat, "max_tokens": 200, "seed": seed, "response_format": SCHEMA}})
        stop = {"prompt": "Once upon a time", "max_tokens": 180, "temperature": 0.8, "seed": seed, "stop": STOPS}
        yield Kind(f"stop {seed}", "/v2/tasks", {"model": "builtin", **stop})
        yield Kind(f"v1 stop {seed}", "/v1/completions", {"model": "builtin", "stream": True, **stop})
        tool = {**chat, "max_tokens": 200, "seed": seed, "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
        yield Kind(f"tool {seed}", "/v2/tasks", {"model": CHAT, "kind": "chat", "request": tool})
        yield Kind(f"v1 tool {seed}", "/v1/chat/completions", {"model": CHAT, "stream": True, **tool})
        three = {"prompt": "One day", "n": 3, "max_tokens": 70, "temperature": 0.8, "seed": seed}
        yield Kind(f"three {seed}", "/v2/tasks", {"model": "builtin", "kind": "completion", "request": three})
        yield Kind(f"v1 three {seed}", "/v1/completions", {"model": "builtin", "stream": True, **three})
        yield Kind(f"v1 chat {seed}", "/v1/chat/completions", {"model": CHAT, "stream": True, **chat, "max_tokens": 90, "seed": seed})


class Answer:
    """What a client has heard: text for each choice; each piece once, in order."""

    def __init__(self):
        self.texts = collections.defaultdict(str)
        self.position = ""
        self.end = None  # "end", "[DONE]", or an error's code,
        self.message = ""  # and what it says
        self.reason = None  # why the text ends there
        self.pieces = 0

    def take(self, event, position, data):
        if position:
            self.position = position
        if data == "[DONE]":
            self.end = "[DONE]"
            return
        body = json.loads(data)
        if event == "token":
            if body["i"] != self.pieces:  # text that might begin a stop string is held back: not each id has one
                raise AssertionError(f"token {body['i']} came where {self.pieces} was due")
            self.pieces += 1
            self.texts[0] += body["t"]
        elif event == "end":
            self.end = "end"
            self.reason = body.get("stop_reason")
        elif event == "error" or "error" in body:
            error = body.get("error", body)
            self.end = error["code"] if isinstance(error, dict) and error.get("code") else json.dumps(body)
            self.message = error.get("message", "") if isinstance(error, dict) else ""
        for choice in body.get("choices", []) if event == "message" else []:
            delta = choice.get("delta", {})
            self.texts[choice["index"]] += choice.get("text") or delta.get("content") or ""
            for call in delta.get("tool_calls", []):
                name = call["function"].get("name")
                self.texts[choice["index"]] += (f"{name}: " if name else "") + call["function"].get("arguments", "")
            self.reason = choice.get("finish_reason") or self.reason

    def is_complete(self):
        return self.end in ("end", "[DONE]")


class Client(threading.Thread):
    """Submits one job and follows it to its end, through every blow. What it saw is judged at the end."""

    def __init__(self, storm, kind, detach, leaves):
        super().__init__(daemon=True)
        self.storm, self.kind, self.detach, self.leaves = storm, kind, detach, leaves
        self.answer = Answer()
        self.job = None          # once it was accepted
        self.refused = None
        self.cut_off = False     # a connection that the orchestrator's death broke: nothing was promised
        self.cancelled = False   # asked for
        self.has_left = False
        self.problem = None
        self.reconnects = 0
        self.connection = None

    def run(self):
        try:
            if self.kind.path == "/v2/tasks":
                self.submit()
                if self.job is not None:
                    self.follow()
            else:
                self.stream()
        except Exception as error:  # judged by the test
            self.problem = f"{type(error).__name__}: {error}"

    def submit(self):
        # A client that does not know whether it was accepted asks again, with the same word.
        headers = {"Idempotency-Key": f"storm-{id(self)}-{time.monotonic_ns()}"}
        until = time.monotonic() + END_PATIENCE
        while time.monotonic() < until:
            try:
                self.job = self.storm.fleet.post("/v2/tasks", {**self.kind.body, "detach": self.detach}, headers=headers,
                                                 timeout=20)["job_id"]
                return
            except Refused as refused:
                if refused.status not in (429, 503):
                    self.refused = str(refused)
                    return
            except BROKEN:
                pass
            time.sleep(0.1)
        self.refused = "never accepted"

    def follow(self):
        until = time.monotonic() + 4 * END_PATIENCE
        while self.answer.end is None and time.monotonic() < until and not self.has_left:
            headers = {"Last-Event-ID": self.answer.position} if self.answer.position else {}
            try:
                self.connection = Connection(self.storm.fleet.port, "GET", f"/v2/tasks/{self.job}/events", headers=headers, timeout=60)
                if self.connection.status == 503:
                    raise ConnectionError("starting")
                if self.connection.status != 200:
                    self.connection.whole()
                for event in self.connection.events():
                    self.answer.take(*event)
                    if self.leaves and sum(map(len, self.answer.texts.values())) > 20:
                        self.has_left = True
                        self.connection.close()
                        return
            except BROKEN + (ValueError, AttributeError):  # AttributeError: closed under its hands by `drop`
                time.sleep(0.05)
            self.reconnects += 1
        if self.answer.end is None and not self.has_left:
            raise AssertionError("never ended")

    def stream(self):
        starts = self.storm.fleet.starts
        try:
            self.connection = Connection(self.storm.fleet.port, "POST", self.kind.path, self.kind.body, timeout=60)
            if self.connection.status != 200:
                self.refused = f"{self.connection.status} {self.connection.answer.read().decode()}"
                return
            for event in self.connection.events():
                self.answer.take(*event)
        except BROKEN + (ValueError, AttributeError):
            pass
        # Whether the orchestrator went under this answer is known once it is back.
        if not self.answer.is_complete() and (self.storm.fleet.starts != starts or self.storm.is_down or not self.storm.fleet.is_healthy()):
            self.cut_off = True

    def drop(self):
        """The connection breaks; the client comes back with the last position it heard."""
        connection = self.connection
        if connection is not None:
            try:
                connection.answer.fp.raw._sock.shutdown(2)
            except (OSError, AttributeError):
                pass
