#include "worker/run.h"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>

#include "api/daemon.h"
#include "api/daemon_options.h"
#include "base/job_border.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/version.h"
#include "contract/backend_kind.h"
#include "http/url.h"
#include "worker/engine_backend.h"
#include "worker/memory_plan.h"
#include "worker/ready_callback.h"
#include "worker/startup.h"
#include "worker_http/routes.h"

namespace llorch::worker {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kDrainTick{20};
constexpr milliseconds kLastAnswers{5'000};  // for what was answered but not yet read
constexpr milliseconds kLastWords{1'000};    // the same when it has to be quick
constexpr int kIoThreads = 4;
constexpr std::size_t kDescriptorReserve = 256;  // for files, the callback and what libraries open

const base::Logger& logger() {
  static const base::Logger instance("worker");
  return instance;
}

// Where others reach a worker that listens on `host`.
std::string uri_of(const std::string& host, std::uint16_t port) {
  std::string name = host;
  if (host == "0.0.0.0" || host == "::") {
    char machine[256] = {};
    if (::gethostname(machine, sizeof(machine) - 1) == 0 && machine[0] != '\0') name = machine;
  }
  return api::server_url(name, port);
}

// Large blocks come from the system and go back to it: glibc would raise its thresholds with the
// first large block that is freed, and keep tens of megabytes of what reading a tokenizer took.
void keep_heap_tight() {
#ifdef __GLIBC__
  constexpr int kLargeBytes = 1 << 20;
  ::mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  ::mallopt(M_TRIM_THRESHOLD, kLargeBytes);
  // Each further arena keeps what its threads freed, and nobody else uses it.
  ::mallopt(M_ARENA_MAX, 1);
#endif
}

// One, or the GPUs that share the layers.
std::vector<std::string> devices_of(const contract::BackendKind& kind,
                                    const WorkerOptions& options) {
  if (!kind.needs_gpu) return {contract::device_name(kind, 0)};
  std::vector<std::string> devices;
  for (const std::int32_t gpu : options.gpu_devices)
    devices.push_back(contract::device_name(kind, gpu));
  return devices;
}

// GPUs are numbered by their places on the bus, as the driver's tools and the pool number them;
// CUDA's own order would put the fastest first. Before any thread.
void number_gpus_by_bus(const contract::BackendKind& kind) {
  if (kind.needs_gpu) ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
}

int print_plan(const contract::BackendKind& kind, const WorkerOptions& options) {
  const Result<contract::MemoryNeed> need = plan_memory(options, devices_of(kind, options));
  if (!need.ok()) return api::report_failure(kind.program, need.error());
  return api::end_command(kind.program, {0, json::serialize(contract::to_json(*need)) + "\n"});
}

class Worker {
 public:
  Worker(const contract::BackendKind& kind, WorkerOptions options)
      : kind_(kind),
        options_(std::move(options)),
        backend_(
            [this](EngineBackend::Patience patience) {
              if (patience) drain_by_ = Clock::now() + *patience;
              loop_.request_end();
            },
            options_.inference_timeout) {}

  int run() {
    if (Status listening = listen(); !listening.ok()) return fail(listening.error());
    logger().info("listening", {{"worker_id", options_.worker_id},
                                {"host", options_.host},
                                {"port", server_->port()},
                                {"version", base::version()}});
    starter_ = base::start_thread("load", [this](const std::stop_token& stop) { start(stop); });
    loop_.run(milliseconds(-1), [this] { return failed_.load(); });
    if (failed_) {
      backend_.stop();
      server_->stop();
      starter_.join();
      return fail(*failure_);
    }
    return shut_down();
  }

 private:
  int fail(const Error& error) const { return api::report_failure(kind_.program, error); }

  Status check_flags() const {
    if (options_.callback_url.empty()) return ok_status();
    const Result<http::Url> url = http::parse_url(options_.callback_url);
    return url.ok() ? ok_status() : Status(url.error().in("--callback-url"));
  }

  Status listen() {
    if (Status flags = check_flags(); !flags.ok()) return flags;
    worker_http::RouteSettings settings;
    settings.inference_timeout = options_.inference_timeout;
    Result<std::unique_ptr<http::Server>> started =
        api::start_server([&] { return worker_http::make_router(backend_, settings); },
                          {.host = options_.host,
                           .port = options_.port,
                           .api_token_file = options_.api_token_file,
                           .allow_origins = options_.allow_origins,
                           .paths_without_auth = worker_http::paths_without_auth(),
                           .io_threads = kIoThreads,
                           .descriptor_reserve = kDescriptorReserve});
    if (!started.ok()) return started.error();
    server_ = started.take();
    return ok_status();
  }

  // On the starter's thread: everything from loading to the callback.
  void start(const std::stop_token& stop) {
    const auto all_of_it = [&]() -> Result<bool> {
      Status outcome = load(stop);
      if (outcome.ok() && !options_.callback_url.empty()) outcome = tell_ready(stop);
      if (!outcome.ok()) return outcome.error();
      return true;
    };
    const Result<bool> outcome = base::run_job<bool>("while loading the model", all_of_it);
    if (outcome.ok() || stop.stop_requested()) return;
    failure_ = outcome.error();
    failed_ = true;
    loop_.wake();
  }

  Status load(const std::stop_token& stop) {
    const auto since = std::chrono::steady_clock::now();
    Result<std::unique_ptr<ServingModel>> model =
        load_serving_model(options_, devices_of(kind_, options_), [&](double progress) {
          backend_.set_progress(progress);
          return !stop.stop_requested();
        });
    if (!model.ok()) return model.error();
    memory_bytes_ = (*model)->info.memory_bytes;
    backend_.set_model(model.take());
    backend_.set_ready();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - since;
    const worker_http::ModelInfo& info = *backend_.model();
    logger().info("ready", {{"model", info.id},
                            {"architecture", info.architecture},
                            {"quant_kind", info.quant_kind},
                            {"device", info.device},
                            {"context_length", info.context_length},
                            {"tool_calls", openai::dialect_name(info.style.dialect)},
                            {"memory_bytes", info.memory_bytes},
                            {"seconds", elapsed.count()}});
    return ok_status();
  }

  Status tell_ready(const std::stop_token& stop) const {
    if (is_test_callback(options_.callback_url)) {
      logger().info("test mode: the ready callback is not sent");
      return ok_status();
    }
    contract::ReadyCallback callback;
    callback.worker_id = options_.worker_id;
    callback.uri = uri_of(options_.host, server_->port());
    callback.model_ref = options_.model;
    callback.memory_bytes = memory_bytes_;
    callback.memory_architecture = kind_.memory_type;
    callback.worker_type = kind_.program;
    callback.version = base::version();
    return send_ready_callback(options_.callback_url, callback, options_.callback_mark, {}, stop);
  }

  // Accept nothing, let what runs finish while there is patience, then close. A second signal ends
  // the patience. Whatever is cut off hears of it before its connection closes.
  int shut_down() {
    logger().info("draining");
    backend_.begin_drain();
    starter_.request_stop();
    // Every request has a deadline of its own, so this ends.
    const Clock::time_point deadline = Clock::now() + options_.inference_timeout + kLastAnswers;
    bool is_interrupted = false;
    while (!is_interrupted && !backend_.is_idle() &&
           Clock::now() < std::min(deadline, drain_by_.load()))
      is_interrupted = loop_.wait_for_signal(kDrainTick);
    const bool is_idle = backend_.is_idle();
    if (!is_idle) logger().info("ending what still runs");
    backend_.stop();
    const auto patience = is_interrupted ? kLastWords : kLastAnswers;
    std::jthread drainer;
    const bool is_drained =
        loop_.run_until_signal(drainer, "drain", [this, patience] { server_->drain(patience); });
    server_->stop();
    starter_.join();
    is_interrupted |= !is_drained;
    logger().info("stopped", {{"interrupted", is_interrupted}});
    return is_interrupted ? api::kExitInterrupted : 0;
  }

  const contract::BackendKind kind_;
  const WorkerOptions options_;
  api::MainLoop loop_;  // before every thread
  std::atomic<Clock::time_point> drain_by_ = Clock::time_point::max();
  std::atomic<bool> failed_ = false;  // failure_ is set before it
  std::optional<Error> failure_;
  std::int64_t memory_bytes_ = 0;  // the starter's thread
  EngineBackend backend_;
  std::unique_ptr<http::Server> server_;
  std::jthread starter_;
};

}  // namespace

int run_worker(const contract::BackendKind& kind, int argc, char** argv,
               const Environment& environment) {
  const ParsedCommand command = parse_command(kind, {argv + std::min(argc, 1), argv + argc},
                                              environment, ::isatty(STDERR_FILENO) != 0);
  if (!command.options) return api::end_command(kind.program, {command.exit_code, command.text});
  keep_heap_tight();
  number_gpus_by_bus(kind);
  base::configure_log({.format = command.options->log_format});
  if (command.options->plan_memory) return print_plan(kind, *command.options);
  return Worker(kind, *command.options).run();
}

}  // namespace llorch::worker
