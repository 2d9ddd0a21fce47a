// A conversation with one model over OpenAI's endpoints, as any client would have it.
import { eventsOf, Refusal, send } from "./wire.js";
import { byId, draw } from "./draw.js";
import { choices, credits } from "./words.js";

// What a chunk adds to the answer: {text, thought, tokens, failure}.
export function readChunk(data) {
  if (data === "[DONE]") return {};
  const chunk = JSON.parse(data);
  if (chunk.error) return { failure: chunk.error.message };
  const choice = chunk.choices?.[0];
  return {
    text: choice?.delta?.content ?? choice?.text ?? "",
    thought: choice?.delta?.reasoning_content ?? "",
    reason: choice?.finish_reason ?? null,
    tokens: chunk.usage?.completion_tokens ?? null,
  };
}

// A comment of a stream that waits, as a sentence; empty: none that people want.
export function readComment(comment) {
  const [word, ...rest] = comment.split(" ");
  if (word !== "queued" && word !== "loading" && word !== "migrated") return "";
  const facts = JSON.parse(rest.join(" "));
  if (word === "migrated") return `goes on at ${facts.to ?? "another worker"}`;
  if (word === "loading") {
    const part = typeof facts.progress === "number" ? ` ${Math.round(facts.progress * 100)} %` : "";
    return `${facts.stage ?? "loading"}${part}…`;
  }
  return facts.queue_position > 0 ? `${facts.queue_position}. in line…` : "waiting…";
}

export class Conversation {
  #said = [];
  #abort = null;
  #plain = new Set();  // models that were seen to have no chat template

  constructor() {
    byId("question").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.#abort === null) this.#say();
    });
    byId("text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("question").requestSubmit();
    });
    byId("stop").addEventListener("click", () => this.#abort?.abort());
    byId("clear").addEventListener("click", () => {
      this.#abort?.abort();
      this.#said = [];
      byId("talk").replaceChildren();
    });
  }

  // Keeps what is chosen.
  offer(models) {
    const select = byId("model");
    const wanted = choices(models);
    const now = [...select.options].map((option) => `${option.value}|${option.text}`).join();
    if (now === wanted.map((choice) => `${choice.name}|${choice.label}`).join()) return;
    const chosen = select.value;
    select.replaceChildren(...wanted.map((choice) => draw("option", { value: choice.name }, choice.label)));
    if (wanted.some((choice) => choice.name === chosen)) select.value = chosen;
  }

  #options() {
    const options = { model: byId("model").value, stream: true, stream_options: { include_usage: true } };
    if (byId("temperature").value !== "") options.temperature = Number(byId("temperature").value);
    if (byId("max_tokens").value !== "") options.max_tokens = Number(byId("max_tokens").value);
    if (byId("seed").value !== "") options.seed = Number(byId("seed").value);
    return options;
  }

  // A model without a chat template continues the text instead.
  async #open(signal) {
    const options = this.#options();
    if (!this.#plain.has(options.model)) {
      try {
        return await send("/v1/chat/completions", { method: "POST", body: { ...options, messages: this.#said }, signal });
      } catch (refusal) {
        if (!(refusal instanceof Refusal) || refusal.code !== "no_chat_template") throw refusal;
        this.#plain.add(options.model);
      }
    }
    const prompt = this.#said.map((one) => one.content).join("");
    return send("/v1/completions", { method: "POST", body: { max_tokens: 200, ...options, prompt }, signal });
  }

  async #say() {
    const text = byId("text").value;
    if (text.trim() === "") return;
    byId("text").value = "";
    byId("talk").append(draw("div", { className: "said user" }, text));
    this.#said.push({ role: "user", content: text });
    const thought = draw("div", { className: "thought" });
    const words = draw("span");
    const footer = draw("footer", {}, "…");
    const bubble = draw("div", { className: "said assistant" }, thought, words, footer);
    byId("talk").append(bubble);
    this.#abort = new AbortController();
    this.#showBusy(true);
    const facts = { worker: "", job: "", tokens: 0, seconds: 0, firstSeconds: null, moves: 0, reason: "" };
    const began = performance.now();
    try {
      const response = await this.#open(this.#abort.signal);
      facts.worker = response.headers.get("X-Llorch-Worker") ?? "";
      facts.job = response.headers.get("X-Llorch-Job") ?? "";
      for await (const event of eventsOf(response)) this.#take(event, { words, thought, footer, facts, began });
      facts.seconds = (performance.now() - began) / 1000;
      footer.textContent = credits(facts);
    } catch (failure) {
      const stopped = failure.name === "AbortError";
      if (!stopped) bubble.classList.add("failed");
      footer.textContent = stopped ? "stopped" : failure.message;
    }
    // What was not answered is not said again, so that the next question is not two.
    if (words.textContent === "") this.#said.pop();
    else this.#said.push({ role: "assistant", content: words.textContent });
    this.#abort = null;
    this.#showBusy(false);
  }

  #take(event, { words, thought, footer, facts, began }) {
    if (event.comment) {
      const sentence = readComment(event.comment);
      if (event.comment.startsWith("migrated")) ++facts.moves;
      if (sentence) footer.textContent = sentence;
    }
    if (!event.data) return;
    const chunk = readChunk(event.data);
    if (chunk.failure) throw new Error(chunk.failure);
    if (chunk.text || chunk.thought) {
      facts.firstSeconds ??= (performance.now() - began) / 1000;
      words.append(chunk.text);
      thought.append(chunk.thought);
    }
    if (chunk.reason) facts.reason = chunk.reason;
    if (typeof chunk.tokens === "number") facts.tokens = chunk.tokens;
  }

  #showBusy(busy) {
    byId("send").disabled = busy;
    byId("stop").hidden = !busy;
    if (!busy) byId("text").focus();
  }
}
