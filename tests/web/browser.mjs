// A browser that a test drives: Debian's chromium over its debugging pipe (Chrome's DevTools protocol, one JSON text after another, NUL between them).
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const kFlags = [
  "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
  "--disable-sync", "--disable-extensions", "--remote-debugging-pipe", "--hide-scrollbars", "about:blank",
];

export class Browser {
  #process;
  #folder = mkdtempSync(join(tmpdir(), "llorch-web-"));
  #next = 1;
  #waiting = new Map();
  #session = "";
  // What a page must not do: errors it logged, and addresses it asked that are not its own.
  complaints = [];
  requests = [];

  static async open(program = "chromium") {
    const browser = new Browser();
    browser.#start(program);
    const { targetInfos } = await browser.#call("Target.getTargets");
    const page = targetInfos.find((target) => target.type === "page");
    browser.#session = (await browser.#call("Target.attachToTarget", { targetId: page.targetId, flatten: true })).sessionId;
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await browser.call(`${domain}.enable`);
    return browser;
  }

  #start(program) {
    this.#process = spawn(program, [...kFlags, `--user-data-dir=${this.#folder}`], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    const failAll = (why) => {
      for (const { reject } of this.#waiting.values()) reject(new Error(why));
      this.#waiting.clear();
    };
    this.#process.on("error", (error) => failAll(`${program}: ${error.message}`));
    this.#process.on("exit", (code) => failAll(`${program} ended with ${code}`));
    let rest = "";
    this.#process.stdio[4].setEncoding("utf8").on("data", (piece) => {
      const texts = (rest + piece).split("\0");
      rest = texts.pop();
      for (const text of texts) this.#hear(JSON.parse(text));
    });
  }

  #hear(message) {
    const { id, method, params } = message;
    if (id !== undefined) {
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (message.error) reject(new Error(message.error.message));
      else resolve(message.result);
    } else if (method === "Runtime.exceptionThrown") {
      this.complaints.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    } else if (method === "Log.entryAdded" && params.entry.level === "error") {
      this.complaints.push(`${params.entry.text} ${params.entry.url ?? ""}`);
    } else if (method === "Network.requestWillBeSent") {
      this.requests.push(params.request.url);
    }
  }

  #call(method, params = {}, sessionId) {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  call(method, params) {
    return this.#call(method, params, this.#session);
  }

  async visit(url) {
    await this.call("Page.navigate", { url });
    await this.until("document.readyState === 'complete'", "the page is there");
  }

  // The value of an expression, or of a promise of one.
  async evaluate(expression) {
    const { result, exceptionDetails } = await this.call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  // Asks until it is so; a minute is for machines with much else to do.
  async until(expression, what, tries = 1200) {
    for (let i = 0; i < tries; ++i) {
      if (await this.evaluate(expression)) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`never so: ${what}; the page says: ${await this.evaluate("document.body.innerText")}`);
  }

  async resize(width, height, scheme) {
    await this.call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
    await this.call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  }

  async picture(file) {
    const { data } = await this.call("Page.captureScreenshot", { format: "png" });
    writeFileSync(file, Buffer.from(data, "base64"));
  }

  async close() {
    const over = new Promise((resolve) => this.#process.once("exit", resolve));
    this.#process.kill("SIGKILL");
    await over;
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
