// Numbers and states as people read them. Pure.

const kShortSeconds = 0.2;
const kUnits = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(count) {
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit + 1 < kUnits.length) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 ? value : value.toPrecision(3)} ${kUnits[unit]}`;
}

export function duration(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export function rate(tokensPerSecond) {
  if (!(tokensPerSecond > 0)) return "–";
  return tokensPerSecond < 100 ? tokensPerSecond.toFixed(1) : Math.round(tokensPerSecond).toString();
}

// Which colour a state of a host or worker has.
export function mood(state) {
  if (["connected", "serving", "ready", "running"].includes(state)) return "good";
  if (["gone", "failed", "lost", "refused"].includes(state)) return "bad";
  return "warn";
}

export function counts(status) {
  const live = `${status.queued} queued (room for ${status.jobs_max}), ${status.running} running`;
  const ended = `${status.completed_total} completed, ${status.failed_total} failed, ${status.cancelled_total} cancelled`;
  const moved = status.moves_total > 0 ? `; ${status.moves_total} moved to another worker` : "";
  return `${live}; since the start ${ended}${moved}`;
}

// Models that are on a connected host first, then those that would be fetched.
export function choices(models) {
  const isHere = (model) => (model.places ?? []).some((place) => place.downloaded);
  const byName = (a, b) => a.name.localeCompare(b.name);
  return [...models.filter(isHere).sort(byName), ...models.filter((model) => !isHere(model)).sort(byName)].map((model) => ({
    name: model.name,
    label: isHere(model) ? model.name : `${model.name} (would be fetched)`,
  }));
}

// What made an answer, for the line below it.
export function credits({ worker, job, tokens, seconds, firstSeconds, moves, reason }) {
  const parts = [];
  if (reason === "length") parts.push("cut at the most tokens that were allowed");
  if (worker) parts.push(worker);
  if (tokens > 0) parts.push(tokens === 1 ? "1 token" : `${tokens} tokens`);
  if (firstSeconds !== null) parts.push(`first after ${Math.round(firstSeconds * 1000)} ms`);
  // What came at once says nothing of the pace at which it was made.
  if (tokens > 1 && seconds - firstSeconds > kShortSeconds) parts.push(`${rate((tokens - 1) / (seconds - firstSeconds))} tokens/s`);
  if (moves > 0) parts.push(moves === 1 ? "moved once" : `moved ${moves} times`);
  if (job) parts.push(`job ${job.slice(0, 8)}`);
  return parts.join(" · ");
}
