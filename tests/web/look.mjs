// The orchestrator's page in a real browser, over the real programs and the built-in model.
// Usage: node look.mjs LLORCH [FOLDER]: pictures stay in FOLDER where one is named. Exit code 77: there is no browser (Debian: chromium).
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Browser } from "./browser.mjs";

const [llorch, folder] = process.argv.slice(2);
assert.ok(llorch, "usage: node look.mjs LLORCH [FOLDER]");
try {
  execFileSync("chromium", ["--version"], { stdio: "ignore" });
} catch {
  console.error("SKIPPED: no chromium here; the page was not looked at");
  process.exit(77);
}

const home = mkdtempSync(join(tmpdir(), "llorch-look-"));
const run = (...words) => execFileSync(llorch, words, { env: { PATH: process.env.PATH, LLORCH_HOME: home }, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });

async function post(url, body) {
  const response = await fetch(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  assert.ok(response.ok, `${url}: ${response.status}`);
  return response.json();
}

const kIsOver = "document.getElementById('stop').hidden && document.querySelector('.said.assistant') !== null";
const lastFooter = "[...document.querySelectorAll('.said footer')].at(-1).textContent";

// Fills the form in and sends it; `then` runs in the same turn of the page.
function say(browser, text, { seed = "7", tokens = "40", then = "" } = {}) {
  return browser.evaluate(`{
    const set = (id, value) => { document.getElementById(id).value = value; };
    set("text", ${JSON.stringify(text)}); set("seed", "${seed}"); set("max_tokens", "${tokens}"); set("temperature", "0.8"); set("model", "builtin");
    document.getElementById("send").click(); ${then}
  }`);
}

async function showsTheHouse(browser) {
  await browser.until("document.querySelector('#hosts .host') !== null && document.getElementById('model').options.length > 1", "hosts and models");
  assert.match(await browser.evaluate("document.querySelector('#hosts .host').innerText"), /local\s+connected/);
  assert.equal(await browser.evaluate("document.getElementById('model').value"), "builtin", "what is here is offered first");
  assert.match(await browser.evaluate("document.getElementById('models').innerText"), /builtin\s+14\.5 MiB/);
}

async function answersWordForWord(browser, url) {
  const prompt = "Once upon a time";
  await say(browser, prompt);
  await browser.until(kIsOver, "the answer is over");
  const { choices } = await post(`${url}/v1/completions`, { model: "builtin", prompt, seed: 7, max_tokens: 40, temperature: 0.8 });
  assert.equal(await browser.evaluate("document.querySelector('.said.assistant span').textContent"), choices[0].text);
  assert.match(await browser.evaluate(lastFooter), /^cut at the most tokens .* local\/worker-cpu-0 · 40 tokens · .* job [0-9a-f]{8}$/);
  await browser.until("/worker-cpu-0\\s+local\\s+builtin\\s+serving/.test(document.getElementById('workers').innerText)", "its worker is shown");
}

async function stopsAndForgets(browser) {
  await say(browser, "and then", { then: 'document.getElementById("stop").click();' });
  await browser.until(`${kIsOver} && ${lastFooter} === 'stopped'`, "it says that it was stopped");
  await browser.evaluate("document.getElementById('clear').click()");
  assert.equal(await browser.evaluate("document.getElementById('talk').childElementCount"), 0);
}

async function showsTextAsText(browser) {
  await say(browser, "<img src=x onerror='document.title=1'><b>", { tokens: "1" });
  await browser.until(kIsOver, "the answer is over");
  assert.equal(await browser.evaluate("document.querySelectorAll('#talk img, #talk b').length"), 0);
  assert.equal(await browser.evaluate("document.title"), "llama-orch");
}

async function saysWhatIsRefused(browser) {
  await say(browser, "too many", { tokens: "99999" });
  await browser.until(`${kIsOver} && /max_tokens/.test(${lastFooter})`, "the refusal names the field");
}

// A job that no host may run waits: the page shows it, says why, and cancels it.
async function cancelsAJob(browser, url) {
  const { job_id: job } = await post(`${url}/v2/tasks`, { model: "builtin", prompt: "x", labels: ["nowhere"], detach: true });
  const press = (word) => `document.querySelector('[data-key="${word} ${job}"]').click()`;
  await browser.until(`document.querySelector('[data-key="Why ${job}"]') !== null`, "the job is shown");
  await browser.evaluate(press("Why"));
  await browser.until("document.getElementById('why').open && /lacks a label/.test(document.getElementById('why_text').textContent)", "the sheet says what is missing");
  await browser.evaluate("document.getElementById('why').close()");
  await browser.evaluate(press("Cancel"));
  await browser.until(`document.querySelector('[data-key="Cancel ${job}"]') === null`, "the job is gone");
  assert.equal((await (await fetch(`${url}/v2/tasks/${job}`)).json()).status, "cancelled");
}

async function asksForAKey(browser, url) {
  const infer = JSON.parse(run("keys", "add", "laptop", "--json")).key;
  const enter = (key) => browser.evaluate(`document.getElementById("key").value = "${key}"; document.querySelector("#door button").click()`);
  await browser.evaluate("sessionStorage.setItem('llorch_key', 'llk_wrong')");
  await browser.until("!document.getElementById('door').hidden", "the door is shown");
  await enter(infer);
  await browser.until("document.getElementById('door').hidden && document.getElementById('house').hidden", "a key of scope infer may ask and not look");
  assert.ok((await browser.evaluate("document.getElementById('model').options.length")) > 1);
  await enter(readFileSync(join(home, "key"), "utf8").trim());
  await browser.until("!document.getElementById('house').hidden", "this home's own key sees the house");
  await browser.visit(`${url}/`);
}

async function fitsAndComesFromHere(browser, url) {
  for (const [width, height, scheme] of [[1280, 1000, "light"], [1280, 1000, "dark"], [400, 1400, "dark"]]) {
    await browser.resize(width, height, scheme);
    assert.ok((await browser.evaluate("document.documentElement.scrollWidth")) <= width, `wider than ${width}`);
    if (folder) await browser.picture(join(folder, `house-${width}-${scheme}.png`));
  }
  const elsewhere = browser.requests.filter((request) => !request.startsWith(`${url}/`) && !request.startsWith("data:") && request !== "about:blank");
  assert.deepEqual(elsewhere, []);
  // A browser writes down every answer that is a refusal; those above were meant.
  assert.deepEqual(browser.complaints.filter((line) => !/status of (400|401|403)/.test(line)), []);
}

let browser = null;
try {
  run("up");
  const { url } = JSON.parse(readFileSync(join(home, "orchestrator.json"), "utf8"));
  browser = await Browser.open();
  await browser.visit(`${url}/`);
  await showsTheHouse(browser);
  await answersWordForWord(browser, url);
  await stopsAndForgets(browser);
  await showsTextAsText(browser);
  await saysWhatIsRefused(browser);
  await cancelsAJob(browser, url);
  await asksForAKey(browser, url);
  await showsTheHouse(browser);
  await fitsAndComesFromHere(browser, url);
  console.log("the page shows the house, asks, stops, refuses, explains, cancels and wants keys; nothing from outside, nothing sticks out");
} finally {
  await browser?.close();
  run("down");
  rmSync(home, { recursive: true, force: true });
}
