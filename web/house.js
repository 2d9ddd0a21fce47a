// The house: hosts, workers, jobs and models of GET /v2/status as elements.
import { ask } from "./wire.js";
import { byId, draw, table } from "./draw.js";
import { bytes, counts, duration, mood, rate } from "./words.js";

function showHost(host) {
  const meters = host.devices.map((device) => {
    const used = device.total_bytes - device.free_bytes;
    return draw("div", { className: "meter" },
      draw("span", {}, device.name),
      draw("meter", { max: device.total_bytes, value: used, title: `memory in use on ${device.name}` }),
      draw("span", { className: "soft" }, `${bytes(used)} of ${bytes(device.total_bytes)}`));
  });
  const facts = [host.os, host.cores > 0 ? `${host.cores} cores` : "", host.disk_free_bytes > 0 ? `${bytes(host.disk_free_bytes)} of disk free` : "",
    `${host.workers} ${host.workers === 1 ? "worker" : "workers"}`, `${host.running} ${host.running === 1 ? "job" : "jobs"}`].filter((fact) => fact);
  const trouble = [host.step, host.reason, host.note].filter((text) => text).join("; ");
  return draw("article", { className: "host" },
    draw("header", {}, draw("strong", {}, host.name), draw("span", { className: mood(host.state) }, host.state),
      host.labels.length > 0 ? draw("span", { className: "soft" }, host.labels.join(", ")) : null),
    trouble ? draw("div", { className: mood(host.state) }, trouble) : null,
    ...meters,
    draw("div", { className: "soft" }, facts.join(" · ")));
}

function showLoad(load) {
  const left = load.eta_ms > 0 ? `, about ${duration(load.eta_ms / 1000)} left` : "";
  const bar = draw("progress", { max: 1 });
  if (load.progress !== null && load.progress !== undefined) bar.value = load.progress;
  return draw("div", { className: "meter" }, draw("span", {}, `${load.model} on ${load.host}`), bar, draw("span", { className: "soft" }, `${load.stage}${left}`));
}

const kWorkers = [
  { title: "Worker", of: (worker) => worker.id || "(starting)" },
  { title: "Host", of: (worker) => worker.host },
  { title: "Model", of: (worker) => worker.model },
  { title: "State", of: (worker) => draw("span", { className: mood(worker.leaving ? "leaving" : worker.state) }, worker.leaving ? "leaving" : worker.state) },
  { title: "Busy", number: true, of: (worker) => `${worker.busy}/${worker.slots}` },
  { title: "Tokens/s", number: true, of: (worker) => rate(worker.decode_tps) },
  { title: "Memory", number: true, of: (worker) => bytes(worker.memory_bytes) },
];

function whereIs(job) {
  if (job.worker) return `${job.host} ${job.worker}`;
  if (job.queue_position) return `${job.queue_position}. in line`;
  return job.host ?? "";
}

async function explain(job) {
  const sheet = await ask(`/v2/tasks/${encodeURIComponent(job.job_id)}/why`);
  const dispatches = sheet.dispatches.map((one) => `${one.at}  ${one.host} ${one.worker}\n${one.sheet}`);
  byId("why_text").textContent = [sheet.sheet, ...dispatches].filter((text) => text).join("\n") || "Nobody has been asked yet.";
  byId("why").showModal();
}

// `act` runs something that may be refused and shows why.
function jobColumns(act) {
  const button = (word, job, step) => {
    const made = draw("button", { type: "button", onclick: () => act(step) }, word);
    made.dataset.key = `${word} ${job.job_id}`;
    return made;
  };
  const cancel = (job) => button("Cancel", job, () => ask(`/v2/tasks/${encodeURIComponent(job.job_id)}`, { method: "DELETE" }));
  const why = (job) => button("Why", job, () => explain(job));
  return [
    { title: "Job", of: (job) => draw("code", { title: job.job_id }, job.job_id.slice(0, 8)) },
    { title: "Model", of: (job) => job.model },
    { title: "State", of: (job) => draw("span", { className: mood(job.status) }, job.status) },
    { title: "Where", of: whereIs },
    { title: "Tokens", number: true, of: (job) => String(job.tokens_out) },
    { title: "", of: (job) => draw("span", {}, why(job), cancel(job)) },
  ];
}

const kModels = [
  { title: "Model", of: (model) => model.name },
  { title: "Size", number: true, of: (model) => (model.size_bytes > 0 ? bytes(model.size_bytes) : "–") },
  { title: "Context", number: true, of: (model) => (model.context > 0 ? String(model.context) : "–") },
  { title: "On", of: (model) => model.places.filter((place) => place.downloaded).map((place) => place.host).join(", ") || "–" },
  { title: "Workers", number: true, of: (model) => String(model.places.reduce((sum, place) => sum + place.workers, 0)) },
  { title: "Waiting", number: true, of: (model) => String(model.waiting) },
  { title: "", of: (model) => draw("span", { className: "bad" }, model.load_error ?? "") },
];

export function showHouse(status, act) {
  if (byId("house").querySelector("button:active")) return;  // the one that is being pressed stays until it is let go
  const focus = document.activeElement?.dataset.key;
  byId("counts").textContent = counts(status);
  byId("hosts").replaceChildren(...status.hosts.map(showHost));
  byId("loading").hidden = status.loads.length === 0;
  byId("loads").replaceChildren(...status.loads.map(showLoad));
  byId("workers").replaceChildren(table(kWorkers, status.workers, "None: the first job for a model starts one."));
  byId("jobs").replaceChildren(table(jobColumns(act), status.tasks, "None that waits or runs."));
  byId("models").replaceChildren(table(kModels, status.models, "None: `llorch-pool models download NAME` fetches one."));
  if (focus) byId("house").querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus();
}
