// Looks at the house once a second while somebody looks at the page, and asks for a key where one is wanted.
import { ask, key, Refusal } from "./wire.js";
import { byId } from "./draw.js";
import { showHouse } from "./house.js";
import { Conversation } from "./ask.js";
import { duration } from "./words.js";

const kEveryMs = 1000;
const kModelsEveryMs = 5000;

const conversation = new Conversation();
let newestModels = -Infinity;
let timer = 0;

function showTrouble(text) {
  byId("trouble").hidden = text === "";
  byId("trouble").textContent = text;
}

function showPulse(text, mood) {
  byId("pulse").textContent = text;
  byId("pulse").className = mood;
}

// A step that may be refused; what was refused is shown until the next one works.
async function act(step) {
  try {
    await step();
    showTrouble("");
  } catch (failure) {
    showTrouble(failure.message);
  }
}

async function lookAtModels() {
  if (performance.now() - newestModels < kModelsEveryMs) return;
  conversation.offer((await ask("/v2/models")).models);
  newestModels = performance.now();
}

// A key of scope infer may ask and not look: then the house is not shown.
async function lookAtHouse() {
  try {
    const status = await ask("/v2/status");
    byId("house").hidden = false;
    showHouse(status, act);
    showPulse(`version ${status.version}, up ${duration(status.uptime_seconds)}`, "up");
  } catch (refusal) {
    if (!(refusal instanceof Refusal) || refusal.status !== 403 || key.read() === "") throw refusal;
    byId("house").hidden = true;
    showPulse("this key may ask; the house is shown to keys of scope admin", "up");
  }
}

async function look() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    await lookAtHouse();
    await lookAtModels();
    byId("door").hidden = true;
  } catch (failure) {
    const wantsKey = failure instanceof Refusal && failure.status === 401;
    byId("door").hidden = !wantsKey;
    showPulse(wantsKey ? "closed without a key" : failure instanceof Refusal ? failure.message : "not reached; it is asked again", "down");
  }
  timer = setTimeout(look, kEveryMs);
}

byId("door").addEventListener("submit", (event) => {
  event.preventDefault();
  key.keep(byId("key").value.trim());
  byId("key").value = "";
  look();
});
document.addEventListener("visibilitychange", look);
look();
