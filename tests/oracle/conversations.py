"""Conversations for the template comparison: every shape a chat API can receive, and some it should not."""

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather\nfor a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "City, e.g. \"Zürich\""},
        "days": {"type": "integer", "minimum": 1, "maximum": 18446744073709551615, "default": 3},
        "units": {"type": "string", "enum": ["C", "F"]},
        "detail": {"type": ["boolean", "null"]}}, "required": ["city"]},
    "return": {"type": "object", "properties": {"temp": {"type": "number"}}}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Search <b>the web</b> & more",
    "parameters": {"type": "object", "properties": {
        "query": {"type": "string"},
        "filters": {"type": "array", "items": {"type": "object", "properties": {
            "field": {"type": "string"}, "values": {"type": "array", "items": {"type": "number"}}}}}}}}}
EMPTY_TOOL = {"type": "function", "function": {"name": "now", "description": "", "parameters": {
    "type": "object", "properties": {}}}}


def call(name, arguments, id="call00001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


UNICODE = "Grüße 你好 🎉👩‍👩‍👧 \u200b\u00a0\u3000 עברית 'q' \"d\" \\ \t\x7f <b>&amp;</b>\n\n  end  "

RAW = {
    "system": ([system("You are helpful.\n"), user("Hi")], None),
    "two systems": ([system("A"), system("B"), user("Hi")], None),
    "multi turn": ([user("1"), assistant("2"), user("3"), assistant("4"), user("5")], None),
    "unicode": ([system(UNICODE), user(UNICODE), assistant(UNICODE), user(UNICODE)], None),
    "empty content": ([system(""), user(""), assistant(""), user("  ")], None),
    "no messages": ([], None),
    "ends with assistant": ([user("Hi"), assistant("Hello")], None),
    "tools": ([system("Use tools."), user("Weather?")], [WEATHER, SEARCH, EMPTY_TOOL]),
    "empty tools": ([user("Hi")], []),
    "tool call": ([user("Weather?"), assistant("", tool_calls=[call("get_weather", {"city": "Paris", "days": 2})]),
                   {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "20 C"},
                   assistant("It is 20 C."), user("Thanks")], [WEATHER]),
    "two calls": ([user("Both?"), assistant(None, tool_calls=[
        call("get_weather", {"city": "Zürich", "deep": {"a": [1, 2.5, None, True], "s": "x\ny"}}),
        call("search", {"query": UNICODE, "filters": []}, "call00002")]),
        {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"t\": 1}"},
        {"role": "tool", "tool_call_id": "call00002", "name": "search", "content": UNICODE}], [WEATHER, SEARCH]),
    "call with text arguments": ([user("W"), assistant("Let me see.", tool_calls=[
        call("get_weather", "{\"city\": \"Paris\"}")]),
        {"role": "tool", "tool_call_id": "call00001", "content": "ok"}, user("and?")], [WEATHER]),
    "call without arguments": ([user("W"), assistant("", tool_calls=[call("now", {})])], [EMPTY_TOOL]),
    "content parts": ([user([{"type": "text", "text": "Look"}, {"type": "image"}, {"type": "text", "text": "here"}]),
                       assistant([{"type": "text", "text": "I see"}]), user("Good")], None),
    "thinking": ([user("1"), assistant("<think>\nhm\n</think>\n\nAnswer"), user("2"),
                  assistant("Plain", reasoning_content="because\n"), user("3")], None),
    "thinking at the end": ([user("1"), assistant("done", reasoning_content="why", thinking="t")], None),
    "unknown role": ([{"role": "developer", "content": "Be brief"}, user("Hi")], None),
    "wrong order": ([assistant("Hello"), user("Hi"), user("again")], None),
    "null content": ([user(None), assistant(None), user("x")], None),
    "missing content": ([{"role": "user"}, {"role": "assistant"}], None),
    "ipython": ([user("run"), assistant("x"), {"role": "ipython", "content": "1"}, user("?")], None),
    "names": ([{"role": "user", "content": "Hi", "name": "ann"}, assistant("Yo", name="bot"), user("ok")], None),
}

EXTRAS = [
    {},
    {"enable_thinking": False},
    {"enable_thinking": True, "reasoning_effort": "high"},
    {"documents": [{"title": "T", "text": "Body"}, {"title": "U", "text": UNICODE}]},
    {"date_string": "1 Jan 2025", "tools_in_user_message": False},
]


def conversations():
    for messages, tools in RAW.values():
        for prompt in (False, True):
            yield {"messages": messages, "tools": tools, "add_generation_prompt": prompt,
                   "bos_token": "<s>", "eos_token": "</s>"}
    for extra in EXTRAS[1:]:
        for name in ("system", "multi turn", "tools", "two calls", "thinking"):
            messages, tools = RAW[name]
            yield {"messages": messages, "tools": tools, "add_generation_prompt": True,
                   "bos_token": "<s>", "eos_token": "</s>", **extra}
