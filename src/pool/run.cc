#include "pool/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "api/answers.h"
#include "api/daemon.h"
#include "api/service_notice.h"
#include "api/tls_door.h"
#include "base/confinement.h"
#include "base/file.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/own_program.h"
#include "base/positioned_file.h"
#include "base/process_table.h"
#include "base/version.h"
#include "catalog/verify.h"
#include "contract/pool_state.h"
#include "http/server.h"
#include "http/url.h"
#include "pool/devices.h"
#include "pool/joiner.h"
#include "pool/late_workers.h"
#include "pool/pool_manager.h"
#include "pool/routes.h"
#include "pool/run_options.h"
#include "pool/worker_log.h"

namespace llorch::pool {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Nothing blocks it, and a second one would cost two wake-ups for each token that is relayed.
constexpr int kIoThreads = 1;
constexpr int kWorkThreads = 4;
constexpr std::size_t kWorkWaitingMax = 256;
constexpr milliseconds kLastAnswers{2'000};       // for what was answered but not yet read
constexpr std::size_t kDescriptorReserve = 1024;  // for workers, probes, downloads, logs, files
constexpr std::size_t kCallbackConnections = 64;
constexpr milliseconds kLook{1'000};    // at its own log, and at the fence of relays
constexpr milliseconds kIdleLook{500};  // how often a manager that may leave looks whether it can

const base::Logger& logger() {
  static const base::Logger instance("pool");
  return instance;
}

Status make_folders(const base::Home& home) {
  for (const auto& folder : {home.data, home.models(), home.state, home.logs(), home.workers()}) {
    if (Status made = base::make_private_folder(folder); !made.ok()) {
      return Error{ErrorCode::Internal,
                   fmt::format("{}; LLORCH_HOME names another place", made.error().message)};
    }
  }
  return ok_status();
}

// What this kernel can keep a worker from, and what it lacks for it.
std::string describe_confinement(bool is_wanted) {
  if (!is_wanted) return "none: --confine-workers is false";
  base::ConfinementRules any;
  any.network.emplace().connect.push_back(1);
  const auto prepared = base::Confinement::prepare(any);
  return prepared.ok() ? (*prepared)->describe() : "none: " + prepared.error().message;
}

std::uint64_t unix_ms_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<milliseconds>(now).count());
}

// Everything that runs, in the order in which it is made.
class PoolProcess {
 public:
  PoolProcess(std::string_view program, PoolOptions options, base::Home home,
              const base::Environment& environment)
      : program_(program),
        options_(std::move(options)),
        home_(std::move(home)),
        environment_(environment),
        notify_socket_(environment("NOTIFY_SOCKET")) {
    planner_.worker_cpu = options_.worker_cpu;
    planner_.worker_cuda = options_.worker_cuda;
    planner_.measurements_file = home_.state / "measurements.json";
    planner_.home = home_;
    planner_.environment = environment_;
    planner_.confine = options_.confine_workers;
    downloader_.home = home_;
    downloader_.source = fetch::source_options(environment);
    downloader_.transfer.ca_file = downloader_.source.ca_file;
  }

  int run() {
    if (Status started = start(); !started.ok())
      return api::report_failure(program_, started.error());
    loop_.run(options_.idle_exit_sec > 0 ? kIdleLook : kLook, [this] {
      fence_.look(Clock::now());
      base::keep_log_small(options_.log_file);
      door_->look(*server_);
      return is_idle();
    });
    return shut_down();
  }

 private:
  void note_use() { last_use_ = Clock::now(); }

  // Whether nobody has used this manager for as long as it may wait.
  bool is_idle() {
    if (options_.idle_exit_sec <= 0) return false;
    const std::vector<contract::PoolWorker> workers = workers_.workers();
    const bool has_work =
        downloads_.is_busy() ||
        std::any_of(workers.begin(), workers.end(), [](const contract::PoolWorker& worker) {
          return worker.state != contract::PoolWorkerState::Stopped &&
                 worker.state != contract::PoolWorkerState::Failed;
        });
    if (has_work) note_use();
    if (Clock::now() - last_use_.load() < std::chrono::seconds(options_.idle_exit_sec))
      return false;
    logger().info("nothing used this manager: it ends",
                  {{"idle_exit_sec", options_.idle_exit_sec}});
    return true;
  }

  Status start() {
    if (Status made = make_folders(home_); !made.ok()) return made;
    if (Status listening = listen(); !listening.ok()) return listening;
    const std::string url = api::local_url(options_.host, server_->port(), door_->is_tls());
    std::string callback_base = url;
    const bool hears_loopback =
        http::is_loopback(options_.host) || http::is_any_address(options_.host);
    if (!hears_loopback || door_->is_tls()) {
      // Workers have no token, know no authority and are heard from loopback only, so they get an
      // address there.
      if (Status heard = listen_for_callbacks(); !heard.ok()) return heard;
      callback_base = api::server_url("127.0.0.1", callback_server_->port());
    }
    PoolManagerOptions manager;
    manager.home = home_;
    manager.planner = planner_;
    manager.keeper = options_.keeper;
    manager.callback_url = callback_base + "/v2/internal/workers/ready";
    manager.first_port = options_.workers_first_port;
    manager.confine_workers = options_.confine_workers;
    manager.environment = environment_;
    manager.speeds = &speeds_;
    manager.on_look = [this](const std::vector<contract::PoolWorker>& workers) {
      board_.take_workers(workers);
    };
    Result<std::unique_ptr<PoolManager>> started = PoolManager::start(std::move(manager));
    if (!started.ok()) return started.error();
    manager_ = started.take();
    workers_.set(*manager_);
    make_catalog();
    const std::string socket = listen_unix();
    if (!socket.empty()) joiner_.start(socket);
    if (Status written =
            api::write_daemon_address(address_file(home_), url, socket, door_->has_owners_files());
        !written.ok())
      return written;
    phase_ = PoolPhase::Serving;
    announce(url);
    return ok_status();
  }

  Status listen() {
    // Before a door is made: an authority that nobody can use is not to be left behind.
    if (!http::is_loopback(options_.host) && options_.api_token_file.empty()) {
      return Error{
          ErrorCode::InvalidArgument,
          fmt::format(
              "cannot listen on {}: an address that others can reach needs "
              "--api-token-file, with 16 characters or more; give one, or listen on 127.0.0.1",
              options_.host)};
    }
    Result<api::TlsDoor> door = api::TlsDoor::open(options_.tls, home_, "pool", options_.host);
    if (!door.ok()) return door.error();
    door_ = door.take();
    Result<std::unique_ptr<http::Server>> started =
        api::start_server([this] { return make_router(services()); },
                          {.host = options_.host,
                           .port = options_.port,
                           .any_port = options_.any_port,
                           .api_token_file = options_.api_token_file,
                           .allow_origins = options_.allow_origins,
                           .paths_without_auth = paths_without_auth(),
                           .fields_of_known = {std::string(contract::kBootHeader)},
                           .tls_certificate_file = door_->certificate_file(),
                           .tls_key_file = door_->key_file(),
                           .io_threads = kIoThreads,
                           .descriptor_reserve = kDescriptorReserve});
    if (!started.ok()) return started.error();
    server_ = started.take();
    return ok_status();
  }

  // Behind the lock, so that there is one manager at most. Where it cannot be had the pool serves
  // without; its path, or nothing.
  std::string listen_unix() {
    std::string path = (run_folder(home_, environment_) / "pool.sock").string();
    const Status listening = server_->listen_unix(path);
    if (listening.ok()) return path;
    logger().warn("there is no unix socket", {{"why", listening.error().message}});
    return {};
  }

  Status listen_for_callbacks() {
    http::ServerOptions server;
    server.io_threads = 1;
    server.max_connections = kCallbackConnections;
    server.render_error = api::render_error;
    Result<std::unique_ptr<http::Server>> started =
        http::Server::start(make_callback_router(workers_, threads_), std::move(server));
    if (!started.ok()) return started.error().in("the server for workers' callbacks");
    callback_server_ = started.take();
    return ok_status();
  }

  PoolServices services() {
    return PoolServices{
        .home = home_,
        .workers = workers_,
        .downloads = downloads_,
        .threads = threads_,
        .board = board_,
        .fence = fence_,
        .speeds = speeds_,
        .host = [this] { return devices_.read(home_.models()); },
        .plan =
            [this](const contract::ModelEntry& model, const PlanRequest& request) {
              return planner_.plan(model, request, devices_.read(home_.models()));
            },
        .download =
            [this](const catalog::DownloadRequest& request,
                   const contract::OnDownloadEvent& on_event, std::stop_token stop) {
              return downloader_.download(request, on_event, std::move(stop));
            },
        .verify =
            [this](const catalog::VerifyRequest& request, const contract::OnDownloadEvent& on_event,
                   std::stop_token stop) {
              return catalog::verify_model(downloader_, request, on_event, std::move(stop));
            },
        .adopt =
            [this](const catalog::AdoptRequest& request) {
              return catalog::adopt_models(home_, environment_, request);
            },
        .check_revisions =
            [this](const std::vector<contract::ModelEntry>& models) {
              return catalog::check_revisions(models, downloader_.source, {});
            },
        .request_shutdown = [this] { loop_.request_end(); },
        .phase = [this]() -> PoolPhase {
          return loop_.is_end_requested() ? PoolPhase::Draining : phase_.load();
        },
        .confinement = describe_confinement(options_.confine_workers),
        .labels = options_.labels,
        .joiner = &joiner_,
        .on_use = [this] { note_use(); }};
  }

  // Gives the pool its id. A damaged catalog is no reason not to run: /health says so.
  void make_catalog() const {
    const catalog::ModelCatalog catalog(home_.catalog_file());
    Status made = ok_status();
    if (Result<catalog::CatalogContent> content = catalog.read(); !content.ok()) {
      made = content.error();
    } else if (content->pool_id.empty()) {
      made = catalog.update([](catalog::CatalogContent&) { return ok_status(); });
    }
    if (!made.ok())
      logger().error("the catalog cannot be used", {{"reason", made.error().message}});
  }

  void announce(const std::string& url) const {
    logger().info("ready", {{"url", url},
                            {"host", options_.host},
                            {"port", server_->port()},
                            {"workers", manager_->workers().size()},
                            {"home", home_.data.string()},
                            {"confinement", describe_confinement(options_.confine_workers)},
                            {"version", base::version()}});
    fmt::print("{}: listening on {}\n", program_, url);
    std::fflush(stdout);
    api::send_service_notice(notify_socket_, fmt::format("READY=1\nSTATUS=listening on {}", url));
  }

  // Stops the workers, then us. A second signal leaves the workers to their keepers.
  int shut_down() {
    loop_.request_end();
    logger().info(
        "stopping: workers are drained and stopped; a second signal ends the manager now");
    api::send_service_notice(notify_socket_, "STOPPING=1");
    downloads_.stop();  // their streams hear it while the server still serves
    std::jthread stopper;
    const bool is_done = loop_.run_until_signal(stopper, "stop-workers", [this] {
      workers_.stop_all([this](int running) {
        logger().info("workers still running", {{"count", running}});
        api::send_service_notice(notify_socket_,
                                 fmt::format("STATUS=stopping {} workers", running));
      });
    });
    std::error_code ignored;
    std::filesystem::remove(address_file(home_), ignored);
    if (!is_done) {
      logger().warn("interrupted: workers stay with their keepers");
      std::_Exit(api::kExitInterrupted);  // the stopper may wait for long, and owns nothing to save
    }
    stopper.join();
    server_->drain(kLastAnswers);
    logger().info("stopped");
    return 0;
  }

  const std::string program_;
  const PoolOptions options_;
  const base::Home home_;
  const base::Environment environment_;
  const char* const notify_socket_;
  api::MainLoop loop_;  // before every thread
  Planner planner_;
  catalog::Downloader downloader_;
  std::atomic<Clock::time_point> last_use_ = Clock::now();
  std::atomic<PoolPhase> phase_ = PoolPhase::Starting;
  Devices devices_;
  StateBoard board_{unix_ms_now()};
  Fence fence_;
  SpeedBook speeds_{home_.state / "speeds.json"};
  std::unique_ptr<PoolManager> manager_;
  LateWorkers workers_;
  Downloads downloads_{DownloadsOptions{.max_running = options_.max_downloads}};
  http::WorkThreads threads_{kWorkThreads, kWorkWaitingMax};
  Joiner joiner_{home_};
  std::optional<api::TlsDoor> door_;  // once it listens
  std::unique_ptr<http::Server> callback_server_;
  std::unique_ptr<http::Server> server_;  // last: stops before the rest goes
};

}  // namespace

int run_pool(std::string_view program, const std::vector<std::string>& arguments,
             const base::Environment& environment) {
  return api::run_daemon(program,
                         parse_pool_command(program, arguments, environment, base::own_folder(),
                                            ::isatty(STDERR_FILENO) != 0),
                         environment, [&](const auto& options, const base::Home& home) {
                           return PoolProcess(program, options, home, environment).run();
                         });
}

std::filesystem::path run_folder(const base::Home& home, const base::Environment& environment) {
  const char* own = environment("LLORCH_HOME");
  const char* runtime = environment("XDG_RUNTIME_DIR");
  const bool has_own = own != nullptr && *own != '\0';
  if (has_own || runtime == nullptr || *runtime != '/') return home.state / "run";
  return std::filesystem::path(runtime) / "llorch";
}

std::filesystem::path address_file(const base::Home& home) {
  return home.state / "pool.json";
}

std::optional<PoolAddress> read_pool_address(const base::Home& home) {
  return api::read_daemon_address(address_file(home));
}

}  // namespace llorch::pool
