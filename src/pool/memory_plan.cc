#include "pool/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>

#include "base/process.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "pool/measurements.h"
#include "pool/worker_rules.h"

namespace llorch::pool {
namespace {

namespace fs = std::filesystem;
using contract::MemoryNeed;

constexpr std::chrono::seconds kPlanPatience{10};
constexpr std::int64_t kMarginHost = std::int64_t{256} << 20;
constexpr std::int64_t kMarginGpu = std::int64_t{512} << 20;
// What most requests get along with; a longer context is given up before slots are, this is not.
constexpr std::int32_t kUsualContext = 4096;
constexpr std::int32_t kContextMin = 128;  // less is no advice
constexpr std::int32_t kContextStep = 256;

bool is_gpu(std::string_view device) {
  const contract::BackendKind* kind = contract::find_device_kind(device);
  return kind != nullptr && kind->needs_gpu;
}

// A device and what is free on it.
struct Room {
  std::string_view device;
  std::int64_t free_bytes;
  std::int64_t total_bytes;

  bool holds(std::int64_t bytes) const {
    return bytes + margin_bytes(device, bytes, total_bytes) <= free_bytes;
  }
};

// The need with another cache. What else depends on context and slots (scratch) only shrinks with
// them: it is left as it is, so that what fits here fits when the worker is asked.
MemoryNeed with_cache(const MemoryNeed& need, std::int32_t context, std::int32_t slots) {
  MemoryNeed changed = need;
  const auto scaled = [&](std::int64_t bytes) {
    const std::int64_t tokens = contract::cache_tokens(need.context, need.slots);
    return bytes / tokens * contract::cache_tokens(context, slots);
  };
  changed.context = context;
  changed.slots = slots;
  changed.kv_bytes = need.kv_bytes_per_token * contract::cache_tokens(context, slots);
  changed.kv_q8_0_bytes = scaled(need.kv_q8_0_bytes);
  return changed;
}

MemoryNeed as_q8_0(const MemoryNeed& need) {
  MemoryNeed changed = need;
  changed.kv_bytes = need.kv_q8_0_bytes;
  changed.kv_bytes_per_token =
      need.kv_q8_0_bytes / contract::cache_tokens(need.context, need.slots);
  changed.kv_type = "q8_0";
  changed.kv_q8_0_bytes = 0;
  return changed;
}

// The longest context up to the need's own that fits, rounded down to something people would type;
// 0 when not even kContextMin does. `extra` comes on top of the need.
std::int32_t longest_context(const MemoryNeed& need, std::int32_t slots, std::int64_t extra,
                             const Room& room) {
  const auto fits = [&](std::int32_t context) {
    return room.holds(with_cache(need, context, slots).device_bytes() + extra);
  };
  if (fits(need.context)) return need.context;
  std::int32_t low = 0;  // fits, or nothing does
  std::int32_t high = need.context;
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  if (low >= 4 * kContextStep) low = low / kContextStep * kContextStep;
  return low >= std::min(kContextMin, need.context) ? low : 0;
}

// The changes that each suffice alone; failing that, all of them together; failing that, how much
// is missing at the least.
std::string advise(const MemoryPlan& plan, const Room& room) {
  const MemoryNeed& need = plan.need;
  const std::int64_t extra = std::max<std::int64_t>(0, plan.required_bytes() - need.device_bytes());
  const std::int64_t missing = plan.required_bytes() + plan.margin_bytes - plan.free_bytes;
  std::vector<std::string> ways;
  if (const std::int32_t context = longest_context(need, need.slots, extra, room); context > 0)
    ways.push_back(fmt::format("--ctx {}", context));
  for (std::int32_t slots = need.slots - 1; slots > 0; --slots) {
    if (!room.holds(with_cache(need, need.context, slots).device_bytes() + extra)) continue;
    ways.push_back(fmt::format("--slots {}", slots));
    break;
  }
  const bool has_q8_0 = need.kv_q8_0_bytes > 0;
  if (has_q8_0 && room.holds(as_q8_0(need).device_bytes() + extra)) ways.emplace_back("--kv q8_0");
  if (ways.empty()) {
    const MemoryNeed smallest = has_q8_0 ? as_q8_0(need) : need;
    const std::int32_t context = longest_context(smallest, 1, extra, room);
    if (context > 0) {
      ways.push_back(fmt::format("--ctx {} --slots 1{}", context, has_q8_0 ? " --kv q8_0" : ""));
    }
  }
  if (ways.empty()) {
    return fmt::format("needs {} more, and a smaller cache does not make up for it",
                       base::human_bytes(missing));
  }
  return fmt::format("fits with {}; as asked it needs {} more", fmt::join(ways, ", or "),
                     base::human_bytes(missing));
}

// The last line that says something.
std::string_view last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  const std::size_t end = text.rfind('\n');
  return end == std::string_view::npos ? text : text.substr(end + 1);
}

// Somebody ended it from outside; a program that fails at a file ends by another signal.
bool was_killed(const base::ExitStatus& exit) {
  return exit.signal == SIGKILL || exit.signal == SIGTERM || exit.signal == SIGINT ||
         exit.signal == SIGHUP || exit.signal == SIGQUIT;
}

Result<MemoryNeed> run_worker(const WorkerSurroundings& around, bool confine,
                              std::vector<std::string> arguments) {
  const fs::path& worker = around.program;
  base::ProcessOptions options;
  options.program = worker;
  options.arguments = std::move(arguments);
  options.environment = worker_environment(around);
  options.dies_with_parent = true;
  if (confine) {
    Result<std::shared_ptr<const base::Confinement>> prepared =
        base::Confinement::prepare(worker_rules(around));
    if (!prepared.ok()) return prepared.error();
    options.confinement = prepared.take();
  }
  Result<std::unique_ptr<base::Process>> process = base::Process::spawn(options);
  if (!process.ok()) return process.error();
  const std::optional<base::ExitStatus> exit = (*process)->wait_for(kPlanPatience);
  if (!exit) {
    (*process)->stop(std::chrono::milliseconds(0));
    return Error{ErrorCode::DeadlineExceeded,
                 fmt::format("{} did not say what it needs within {} s", worker.string(),
                             kPlanPatience.count())};
  }
  const std::string output = (*process)->output_tail();
  std::string_view line = last_line(output);
  if (was_killed(*exit)) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("{}, which was to say what the model needs, {}; try again",
                             worker.string(), exit->describe())};
  }
  if (!exit->success()) {
    const std::string name = worker.filename().string() + ": ";
    if (line.starts_with(name)) line.remove_prefix(name.size());
    // What it says of a flag that came with the request is the request's, not the model's.
    if (exit->signal == 0 && line.starts_with("--kv: "))
      return Error{ErrorCode::InvalidArgument, base::printable(line)};
    return Error{exit->signal == 0 ? ErrorCode::LoadFailed : ErrorCode::Internal,
                 line.empty() || exit->signal != 0
                     ? fmt::format("{} {}", worker.string(), exit->describe())
                     : base::printable(line)};
  }
  const Result<json::Value> value = json::parse(line);
  if (!value.ok()) return value.error().in(fmt::format("what {} printed", worker.string()));
  Result<MemoryNeed> need = contract::parse_memory_need(*value);
  if (need.ok() && (need->slots < 1 || need->context < 1 || need->kv_bytes < 0)) {
    return Error{ErrorCode::Internal,
                 fmt::format("{} printed a need that cannot be right", worker.string())};
  }
  return need;
}

std::vector<std::string> plan_arguments(const contract::ModelEntry& model,
                                        const PlanRequest& request) {
  // Every flag that decides is given: what the environment or a file says to workers must not make
  // this one differ from the one that is started later.
  std::vector<std::string> arguments = {"--plan-memory",
                                        "--model",
                                        model.path,
                                        "--ctx",
                                        std::to_string(request.context.value_or(0)),
                                        "--kv",
                                        request.kv_type.empty() ? "f16" : request.kv_type,
                                        "--kv-memory",
                                        "0"};
  if (request.slots) {
    arguments.insert(arguments.end(), {"--max-batch", std::to_string(*request.slots)});
  }
  if (contract::needs_gpu(request.backend) && request.gpu) {
    arguments.insert(arguments.end(), {"--gpu-device", std::to_string(*request.gpu)});
  }
  return arguments;
}

Status check_model(const contract::ModelEntry& model, std::string_view backend) {
  if (model.path.empty() || !model.downloaded) {
    return Error{ErrorCode::NotFound,
                 fmt::format("{} is not here yet; run llorch-pool models download {}",
                             base::quoted(model.id), base::printable(model.id))};
  }
  if (std::find(model.backends.begin(), model.backends.end(), backend) != model.backends.end())
    return ok_status();
  return Error{ErrorCode::Unsupported,
               fmt::format("{} does not run on {}: {}", base::quoted(model.id), backend,
                           model.unsupported.empty()
                               ? fmt::format("it runs on {}", fmt::join(model.backends, ", "))
                               : base::printable(model.unsupported))};
}

Status check_context(const contract::ModelEntry& model, const PlanRequest& request) {
  if (!request.context || !model.context_length || *request.context <= *model.context_length)
    return ok_status();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("a context of {} tokens is more than the model's own context of {}: ask "
                           "for at most that",
                           *request.context, *model.context_length)};
}

// The GPUs that are asked about.
Result<std::vector<contract::GpuInfo>> find_gpus(const PlanRequest& request,
                                                 const contract::HostInfo& host) {
  if (host.gpus.empty()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("there is no GPU here: {}",
                             host.gpu_note.empty() ? "none was found" : host.gpu_note)};
  }
  if (!request.gpu) return host.gpus;
  std::string names;
  for (const contract::GpuInfo& gpu : host.gpus) {
    if (gpu.index == *request.gpu) return std::vector{gpu};
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", gpu.index, gpu.name);
  }
  return Error{ErrorCode::NotFound,
               fmt::format("there is no GPU {}; there are: {}", *request.gpu, names)};
}

struct Place {
  std::string device;
  std::optional<std::int32_t> gpu;
  std::int64_t free_bytes;
  std::int64_t total_bytes;
};

Result<std::vector<Place>> list_places(const PlanRequest& request, const contract::HostInfo& host) {
  const contract::BackendKind& kind = *contract::find_backend_kind(request.backend);
  if (!kind.needs_gpu) {
    return std::vector<Place>{
        {std::string(kind.name), std::nullopt, host.memory_free_bytes, host.memory_total_bytes}};
  }
  const Result<std::vector<contract::GpuInfo>> gpus = find_gpus(request, host);
  if (!gpus.ok()) return gpus.error();
  std::vector<Place> places;
  for (const contract::GpuInfo& gpu : *gpus) {
    places.push_back({contract::device_name(kind, gpu.index), gpu.index, gpu.vram_free_bytes,
                      gpu.vram_total_bytes});
  }
  return places;
}

// What the worker needs with the request's context and slots, or with what is chosen for it.
Result<MemoryNeed> ask_worker(const Planner& planner, const contract::ModelEntry& model,
                              PlanRequest request, const Place& place) {
  const contract::BackendKind& kind = *contract::find_backend_kind(request.backend);
  const WorkerSurroundings around{.program = planner.program(kind),
                                  .model = model.path,
                                  .uses_gpu = kind.needs_gpu,
                                  .home = planner.home,
                                  .environment = planner.environment};
  Result<MemoryNeed> need = run_worker(around, planner.confine, plan_arguments(model, request));
  if (!need.ok()) return need;
  const std::optional<Choice> choice =
      choose(*need, request, place.device, place.free_bytes, place.total_bytes);
  if (!choice || (choice->context == need->context && choice->slots == need->slots)) return need;
  request.context = choice->context;
  request.slots = choice->slots;
  return run_worker(around, planner.confine, plan_arguments(model, request));
}

// A GPU's worker lives in host memory too.
void check_host(const contract::HostInfo& host, MemoryPlan& plan) {
  const Room beside{contract::kCpu, host.memory_free_bytes, host.memory_total_bytes};
  if (!plan.fits || !is_gpu(plan.device) || beside.holds(plan.need.host_bytes)) return;
  plan.fits = false;
  plan.advice = fmt::format(
      "fits on the GPU, but the process needs {} of host memory beside it and {} are free",
      base::human_bytes(plan.need.host_bytes), base::human_bytes(host.memory_free_bytes));
}

}  // namespace

std::int64_t MemoryPlan::required_bytes() const {
  return measured_bytes.value_or(need.device_bytes());
}

std::int64_t margin_bytes(std::string_view device, std::int64_t required_bytes,
                          std::int64_t total_bytes) {
  const std::int64_t least = is_gpu(device) ? kMarginGpu : kMarginHost;
  return std::max(required_bytes / 20, std::min(least, total_bytes / 16));
}

MemoryPlan judge(const MemoryNeed& need, std::optional<std::int64_t> measured_bytes,
                 std::string device, std::int64_t free_bytes, std::int64_t total_bytes) {
  MemoryPlan plan;
  plan.device = std::move(device);
  plan.need = need;
  plan.measured_bytes = measured_bytes;
  plan.free_bytes = free_bytes;
  plan.total_bytes = total_bytes;
  const Room room{plan.device, free_bytes, total_bytes};
  plan.margin_bytes = margin_bytes(plan.device, plan.required_bytes(), total_bytes);
  plan.fits = room.holds(plan.required_bytes());
  if (!plan.fits) plan.advice = advise(plan, room);
  return plan;
}

std::optional<Choice> choose(const MemoryNeed& need, const PlanRequest& request,
                             std::string_view device, std::int64_t free_bytes,
                             std::int64_t total_bytes) {
  const Room room{device, free_bytes, total_bytes};
  const std::int32_t wanted =
      request.context ? need.context : std::min(need.context, kUsualContext);
  for (std::int32_t slots = need.slots; slots > 0; slots /= 2) {
    const std::int32_t context = longest_context(need, slots, 0, room);
    if (context >= wanted) return Choice{request.context ? need.context : context, slots};
    if (!request.slots && slots > 1) continue;
    // Nothing left to give up but the context itself.
    if (request.context || context == 0) return std::nullopt;
    return Choice{context, slots};
  }
  return std::nullopt;
}

Result<std::vector<MemoryPlan>> Planner::plan(const contract::ModelEntry& model,
                                              const PlanRequest& request,
                                              const contract::HostInfo& host) const {
  const contract::BackendKind* kind = contract::find_backend_kind(request.backend);
  if (kind == nullptr) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("there is no backend {}; there are: {}", base::quoted(request.backend),
                             fmt::join(contract::backend_names(), ", "))};
  }
  if (Status good = check_model(model, request.backend); !good.ok()) return good.error();
  std::error_code ignored;
  if (kind->needs_gpu && !fs::exists(program(*kind), ignored)) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("this build has no {}; build with the {} preset", kind->program, kind->name)};
  }
  if (Status good = check_context(model, request); !good.ok()) return good.error();
  const Result<std::vector<Place>> places = list_places(request, host);
  if (!places.ok()) return places.error();
  std::vector<MemoryPlan> plans;
  for (const Place& place : *places) {
    PlanRequest asked = request;
    asked.gpu = place.gpu;
    const Result<MemoryNeed> need = ask_worker(*this, model, asked, place);
    if (!need.ok()) return need.error();
    MemoryPlan plan = judge(
        *need, find_measurement(measurements_file, measurement_key(model, request.backend, *need)),
        place.device, place.free_bytes, place.total_bytes);
    check_host(host, plan);
    plans.push_back(std::move(plan));
  }
  return plans;
}

Status Planner::keep_measurement(const contract::ModelEntry& model, std::string_view backend,
                                 const MemoryNeed& need, std::int64_t peak_bytes) const {
  return pool::keep_measurement(measurements_file, measurement_key(model, backend, need),
                                peak_bytes);
}

std::vector<std::string> worker_flags(const MemoryNeed& need) {
  return {"--ctx",       std::to_string(need.context),
          "--max-batch", std::to_string(need.slots),
          "--kv",        need.kv_type,
          "--kv-memory", std::to_string(need.kv_bytes)};
}

}  // namespace llorch::pool
