// What of the page can be looked at without a browser: the stream's events, and values as words.
import assert from "node:assert/strict";
import { test } from "node:test";
import { EventCutter, Refusal } from "../../web/wire.js";
import { readChunk, readComment } from "../../web/ask.js";
import * as words from "../../web/words.js";

test("events come out whole however the stream is torn", () => {
  const stream = ': queued {"queue_position":2}\n\ndata: {"a":1}\r\n\r\ndata: one\ndata: two\n\ndata: [DONE]\n\n';
  const whole = new EventCutter().push(stream);
  assert.deepEqual(whole.map((event) => event.data), ["", '{"a":1}', "one\ntwo", "[DONE]"]);
  assert.equal(whole[0].comment, 'queued {"queue_position":2}');
  for (let cut = 0; cut <= stream.length; ++cut) {
    const cutter = new EventCutter();
    assert.deepEqual([...cutter.push(stream.slice(0, cut)), ...cutter.push(stream.slice(cut))], whole, `cut at ${cut}`);
    assert.ok(cutter.isWhole());
  }
});

test("a stream that ends within an event is told apart", () => {
  const cutter = new EventCutter();
  assert.equal(cutter.push('data: {"a":1}\n\ndata: {"b"').length, 1);
  assert.ok(!cutter.isWhole());
});

test("chunks of both endpoints are read, and errors in a stream", () => {
  assert.equal(readChunk('{"choices":[{"delta":{"content":"Hi"}}]}').text, "Hi");
  assert.equal(readChunk('{"choices":[{"text":" was","finish_reason":null}],"usage":null}').text, " was");
  assert.equal(readChunk('{"choices":[{"delta":{"reasoning_content":"hm"}}]}').thought, "hm");
  assert.equal(readChunk('{"choices":[{"delta":{},"finish_reason":"length"}]}').reason, "length");
  assert.equal(readChunk('{"choices":[],"usage":{"completion_tokens":3}}').tokens, 3);
  assert.equal(readChunk('{"error":{"message":"no worker is left"}}').failure, "no worker is left");
  assert.deepEqual(readChunk("[DONE]"), {});
});

test("what a waiting stream tells becomes a sentence", () => {
  assert.equal(readComment('queued {"queue_position":3}'), "3. in line…");
  assert.equal(readComment('loading {"stage":"fetching","progress":0.256}'), "fetching 26 %…");
  assert.equal(readComment('loading {"stage":"loading"}'), "loading…");
  assert.equal(readComment('migrated {"from":"a","to":"bert/worker-cpu-0"}'), "goes on at bert/worker-cpu-0");
  assert.equal(readComment("keep-alive"), "");
});

test("a refusal is the server's own sentence, with every field that is wrong", () => {
  const refusal = new Refusal(400, { error: { code: "INVALID_REQUEST", message: "2 fields are wrong", errors: [{ field: "seed", message: "must be 0 or more" }] } });
  assert.equal(refusal.message, "2 fields are wrong; seed must be 0 or more");
  assert.equal(new Refusal(502, null).message, "the orchestrator answered 502");
});

test("numbers are written for people", () => {
  assert.deepEqual([0, 1023, 1024, 15200352, 25276510208].map(words.bytes), ["0 B", "1023 B", "1.00 KiB", "14.5 MiB", "23.5 GiB"]);
  assert.deepEqual([0, 59.9, 60, 7199, 172800].map(words.duration), ["0 s", "59 s", "1 min", "1 h", "2 d"]);
  assert.deepEqual([0, 8.04, 3646.2].map(words.rate), ["–", "8.0", "3646"]);
});

test("models that are here come first", () => {
  const models = [
    { name: "zeta", places: [] }, { name: "beta", places: [{ host: "local", downloaded: true }] },
    { name: "alpha", places: [{ host: "local", downloaded: false }] }, { name: "gamma", places: [{ host: "bert", downloaded: true }] },
  ];
  assert.deepEqual(words.choices(models).map((one) => one.label), ["beta", "gamma", "alpha (would be fetched)", "zeta (would be fetched)"]);
});

test("an answer says what made it", () => {
  const facts = { worker: "local/worker-cpu-0", job: "0123456789abcdef", tokens: 41, seconds: 2.5, firstSeconds: 0.5, moves: 1, reason: "length" };
  assert.equal(words.credits(facts), "cut at the most tokens that were allowed · local/worker-cpu-0 · 41 tokens · first after 500 ms · 20.0 tokens/s · moved once · job 01234567");
  assert.ok(!words.credits({ ...facts, seconds: 0.501 }).includes("tokens/s"), "what came at once has no pace");
  assert.equal(words.credits({ worker: "", job: "", tokens: 0, seconds: 0, firstSeconds: null, moves: 0, reason: "stop" }), "");
});
