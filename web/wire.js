// How this page asks the orchestrator: the key, refusals as sentences, streams of events.

const kKeyName = "llorch_key";

export const key = {
  read: () => sessionStorage.getItem(kKeyName) ?? "",
  keep: (text) => sessionStorage.setItem(kKeyName, text),
  forget: () => sessionStorage.removeItem(kKeyName),
};

// What was refused, and by which status; `message` is the orchestrator's own sentence.
export class Refusal extends Error {
  constructor(status, body) {
    const error = body?.error ?? {};
    const failures = (error.errors ?? []).map((one) => `${one.field} ${one.message}`);
    super([error.message ?? `the orchestrator answered ${status}`, ...failures].join("; "));
    this.status = status;
    this.code = error.code ?? "";
  }
}

// The response of a request that was accepted; throws a Refusal else.
export async function send(path, { method = "GET", body, signal } = {}) {
  const headers = {};
  if (key.read() !== "") headers.Authorization = `Bearer ${key.read()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {
    method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store",
  });
  if (response.ok) return response;
  let said = null;
  try {
    said = await response.json();
  } catch {
    // Something between this page and the orchestrator answered: its status says what there is to say.
  }
  throw new Refusal(response.status, said);
}

export async function ask(path, options) {
  return (await send(path, options)).json();
}

// Cuts a stream of server-sent events into events {data, comment}, however its pieces were torn.
export class EventCutter {
  #rest = "";

  push(piece) {
    this.#rest += piece;
    const events = [];
    for (let end; (end = /\r?\n\r?\n/.exec(this.#rest)) !== null;) {
      events.push(readEvent(this.#rest.slice(0, end.index)));
      this.#rest = this.#rest.slice(end.index + end[0].length);
    }
    return events;
  }

  isWhole() {
    return this.#rest.trim() === "";
  }
}

function readEvent(text) {
  const data = [];
  const comment = [];
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith(":")) comment.push(line.slice(1).trim());
    if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
  }
  return { data: data.join("\n"), comment: comment.join("\n") };
}

// The events of an answer as they come.
export async function* eventsOf(response) {
  const cutter = new EventCutter();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    yield* cutter.push(value);
  }
  if (!cutter.isWhole()) throw new Error("the answer was cut off in the middle of an event");
}
