#include "pool/worker_launch.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "base/terminal.h"
#include "base/utf8.h"
#include "contract/backend_kind.h"
#include "contract/model_entry.h"
#include "http/url.h"
#include "pool/worker_rules.h"

namespace llorch::pool {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kPortsTried = 1000;

Error refusal(ErrorCode code, std::string message) {
  return Error{code, std::move(message)};
}

Status check_here(const contract::ModelEntry& model) {
  if (!model.downloaded || model.path.empty()) {
    return refusal(ErrorCode::Conflict,
                   fmt::format("model {} is not here: run `llorch-pool models download {}` first",
                               base::quoted(model.id), model.id));
  }
  if (model.path == contract::kBuiltinModel) return ok_status();
  if (!base::is_valid_utf8(model.path)) {
    return refusal(ErrorCode::Unsupported,
                   fmt::format("model {}: its path {} is no UTF-8 text; rename it",
                               base::quoted(model.id), base::quoted(model.path)));
  }
  std::error_code error;
  if (fs::exists(model.path, error)) return ok_status();
  return refusal(ErrorCode::NotFound,
                 fmt::format("model {}: {} is gone; download or register it again",
                             base::quoted(model.id), model.path));
}

Status check_backend(const contract::ModelEntry& model, const std::string& backend) {
  if (std::find(model.backends.begin(), model.backends.end(), backend) != model.backends.end())
    return ok_status();
  if (model.backends.empty()) {
    return refusal(
        ErrorCode::Unsupported,
        fmt::format("model {} cannot be run here: {}", base::quoted(model.id),
                    model.unsupported.empty() ? "no backend knows it" : model.unsupported));
  }
  return refusal(ErrorCode::Unsupported,
                 fmt::format("model {} does not run on {}, only on {}", base::quoted(model.id),
                             backend, fmt::join(model.backends, ", ")));
}

// A GPU that was asked for and is not there is an error, never a run on the CPU.
Status check_device(const contract::StartWorkerRequest& request, const contract::HostInfo& host) {
  if (!contract::needs_gpu(request.backend)) return ok_status();
  const std::int32_t wanted = request.gpu.value_or(0);
  for (const contract::GpuInfo& gpu : host.gpus) {
    if (gpu.index == wanted) return ok_status();
  }
  const std::string found = host.gpus.empty()
                                ? (host.gpu_note.empty() ? "there is none" : host.gpu_note)
                                : fmt::format("there are {}, numbered from 0", host.gpus.size());
  return refusal(
      ErrorCode::InvalidArgument,
      fmt::format("GPU {} is not here: {}; ask for cpu instead if that is meant", wanted, found));
}

bool is_file(const std::string& chat_template) {
  return chat_template.starts_with('/');
}

// A name is the worker's to know; a file is looked at here, where whoever asked still listens.
Status check_template(const std::string& chosen) {
  if (!is_file(chosen)) return ok_status();
  std::error_code error;
  if (fs::is_regular_file(chosen, error) && base::is_valid_utf8(chosen)) return ok_status();
  return refusal(ErrorCode::InvalidArgument,
                 fmt::format("chat template {} is not a file of this host", base::quoted(chosen)));
}

contract::HostInfo without(contract::HostInfo host, const PromisedMemory& promised) {
  host.memory_free_bytes = std::max<std::int64_t>(0, host.memory_free_bytes - promised.host_bytes);
  for (contract::GpuInfo& gpu : host.gpus) {
    const auto found = promised.vram_bytes.find(gpu.index);
    if (found == promised.vram_bytes.end()) continue;
    gpu.vram_free_bytes = std::max<std::int64_t>(0, gpu.vram_free_bytes - found->second);
  }
  return host;
}

std::string does_not_fit(const contract::ModelEntry& model, const MemoryPlan& plan,
                         const PromisedMemory& promised) {
  std::string text = fmt::format(
      "model {} does not fit on {}: it needs {} and {} are to stay free, {} of {} are free",
      base::quoted(model.id), plan.device, base::human_bytes(plan.required_bytes()),
      base::human_bytes(plan.margin_bytes), base::human_bytes(plan.free_bytes),
      base::human_bytes(plan.total_bytes));
  if (promised.host_bytes > 0 || !promised.vram_bytes.empty())
    text += " (what running workers will still take is counted)";
  if (!plan.advice.empty()) text += "; " + plan.advice;
  return text;
}

WorkerSurroundings surroundings(const PoolManagerOptions& options, const PreparedStart& start,
                                const fs::path& program) {
  return {.program = program,
          .model = start.model.path,
          .uses_gpu = contract::needs_gpu(start.request.backend),
          .home = options.home,
          .environment = options.environment};
}

// Beside what every worker may see: its own port, the one where it reports, and its template.
base::ConfinementRules make_rules(const WorkerSurroundings& around,
                                  const std::vector<std::string>& arguments,
                                  const std::string& chat_template, std::uint16_t port,
                                  std::string_view callback_url) {
  base::ConfinementRules rules = worker_rules(around);
  rules.network->bind = {port};
  const Result<http::Url> callback = http::parse_url(callback_url);
  if (callback.ok()) rules.network->connect = {callback->port};
  const auto token = std::find(arguments.begin(), arguments.end(), "--api-token-file");
  if (token != arguments.end() && token + 1 != arguments.end())
    rules.readable.emplace_back(*(token + 1));
  if (is_file(chat_template)) rules.readable.emplace_back(chat_template);
  return rules;
}

}  // namespace

fs::path pool_lock_file(const base::Home& home) {
  return home.state / "pool.lock";
}

Result<PreparedStart> prepare_start(const contract::StartWorkerRequest& request,
                                    const PoolSources& sources, const PromisedMemory& promised) {
  Result<contract::ModelEntry> model = sources.find_model(request.model);
  if (!model.ok()) return model.error();
  if (Status here = check_here(*model); !here.ok()) return here.error();
  if (Status backend = check_backend(*model, request.backend); !backend.ok())
    return backend.error();
  const contract::HostInfo host = without(sources.read_host(), promised);
  if (Status device = check_device(request, host); !device.ok()) return device.error();
  if (Status found = check_template(request.chat_template); !found.ok()) return found.error();
  Result<std::string> trusted = sources.trust(*model);
  if (!trusted.ok()) return trusted.error();
  PlanRequest wanted{.backend = request.backend,
                     .gpu = std::nullopt,
                     .context = request.context,
                     .slots = request.slots,
                     .kv_type = request.kv_type};
  if (contract::needs_gpu(request.backend)) wanted.gpu = request.gpu.value_or(0);
  Result<std::vector<MemoryPlan>> plans = sources.plan(*model, wanted, host);
  if (!plans.ok()) return plans.error();
  if (plans->empty())
    return refusal(ErrorCode::Internal, "the memory plan names no device: a bug of the planner");
  MemoryPlan& plan = plans->front();
  if (!plan.fits) return refusal(ErrorCode::OutOfMemory, does_not_fit(*model, plan, promised));
  std::string hash = sources.model_hash ? sources.model_hash(*model) : std::string();
  return PreparedStart{request, model.take(), std::move(plan), trusted.take(), std::move(hash)};
}

bool is_port_free(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const int yes = 1;  // as the worker's server has it: a port that was just left is free
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_free =
      ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(fd, 1) == 0;
  ::close(fd);
  return is_free;
}

Result<std::uint16_t> find_free_port(std::uint32_t first, const std::set<std::uint16_t>& taken) {
  const std::uint32_t end = std::min<std::uint32_t>(first + kPortsTried, 65536);
  for (std::uint32_t number = first; number < end; ++number) {
    const auto port = static_cast<std::uint16_t>(number);
    if (!taken.contains(port) && is_port_free(port)) return port;
  }
  return refusal(ErrorCode::Unavailable,
                 fmt::format("no free port for a worker from {} to {}", first, end - 1));
}

LaunchPlan make_launch(const PreparedStart& start, const PoolManagerOptions& options,
                       const LaunchNames& names) {
  const contract::BackendKind& kind = *contract::find_backend_kind(start.request.backend);
  LaunchPlan launch;
  launch.program = options.planner.program(kind);
  launch.arguments = {"--worker-id",    names.id,
                      "--model",        start.model.path,
                      "--alias",        start.model.id,
                      "--port",         std::to_string(names.port),
                      "--callback-url", options.callback_url};
  if (kind.needs_gpu) {
    launch.arguments.emplace_back("--gpu-device");
    launch.arguments.push_back(std::to_string(start.request.gpu.value_or(0)));
  }
  if (!start.request.chat_template.empty()) {
    launch.arguments.emplace_back("--chat-template");
    launch.arguments.push_back(start.request.chat_template);
  }
  for (std::string& flag : options.sources->worker_flags(start.plan.need))
    launch.arguments.push_back(std::move(flag));
  const WorkerSurroundings around = surroundings(options, start, launch.program);
  launch.environment = worker_environment(around);
  launch.environment.push_back(mark_variable(names.mark));
  launch.log_file = options.home.logs() / (names.id + ".log");
  launch.log_bytes_max = options.log_bytes_max;
  launch.lock_file = pool_lock_file(options.home);
  launch.orphan_patience = options.timing.orphan_patience;
  launch.term_patience = options.timing.term_patience;
  if (options.confine_workers) {
    launch.confinement = make_rules(around, launch.arguments, start.request.chat_template,
                                    names.port, options.callback_url);
  }
  return launch;
}

void set_port(LaunchPlan& launch, std::uint16_t port) {
  const auto flag = std::find(launch.arguments.begin(), launch.arguments.end(), "--port");
  CHECK(flag != launch.arguments.end() && flag + 1 != launch.arguments.end(),
        "every launch has a port");
  *(flag + 1) = std::to_string(port);
  if (launch.confinement && launch.confinement->network) launch.confinement->network->bind = {port};
}

void set_mark(LaunchPlan& launch, std::string_view mark) {
  std::erase_if(launch.environment,
                [](const std::string& entry) { return entry.starts_with(mark_variable("")); });
  launch.environment.push_back(mark_variable(mark));
}

}  // namespace llorch::pool
