#include "pool/pool_fixture.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "base/process_table.h"
#include "base/utf8.h"
#include "catalog/trust.h"
#include "contract/error_table.h"
#include "contract/worker_info.h"

namespace llorch::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// A port that was free a moment ago; those above it mostly are.
std::uint16_t some_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(fd, reinterpret_cast<const sockaddr*>(&address), size);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return std::min<std::uint16_t>(ntohs(address.sin_port), 60000);
}

pool::PoolSources made_up_sources(const fs::path& root) {
  pool::PoolSources sources;
  sources.find_model = [root](std::string_view id) -> Result<contract::ModelEntry> {
    contract::ModelEntry model;
    model.id = id;
    if (id == "builtin") {
      model.path = "builtin";
    } else {
      const fs::path path = root / "models" / id;
      if (!fs::exists(path)) return Error{ErrorCode::NotFound, "no model " + base::quoted(id)};
      model.path = path.string();
      model.size_bytes = static_cast<std::int64_t>(fs::file_size(path));
      model.files = {{std::string(id), model.size_bytes, ""}};
    }
    model.downloaded = true;
    model.backends = {"cpu", "cuda"};
    return model;
  };
  sources.trust = [](const contract::ModelEntry& model) { return catalog::trust_model({}, model); };
  sources.read_host = [] {
    contract::HostInfo host;
    host.memory_total_bytes = 8192 * kMiB;
    host.memory_free_bytes = 8192 * kMiB;
    host.gpus = {{.index = 0, .vram_total_bytes = 1024 * kMiB, .vram_free_bytes = 1024 * kMiB}};
    return host;
  };
  sources.plan = [](const contract::ModelEntry& model, const pool::PlanRequest& request,
                    const contract::HostInfo& host) -> Result<std::vector<pool::MemoryPlan>> {
    pool::MemoryPlan plan;
    plan.device = request.backend;
    plan.need.weights_bytes = (model.id.starts_with("huge") ? 100 * 1024 : 1) * kMiB;
    if (model.id.starts_with("half")) plan.need.weights_bytes = 5000 * kMiB;
    plan.need.context = request.context.value_or(2048);
    plan.need.slots = request.slots.value_or(4);
    plan.need.kv_type = "f16";
    plan.free_bytes = host.memory_free_bytes;
    plan.total_bytes = host.memory_total_bytes;
    plan.fits = plan.need.device_bytes() <= plan.free_bytes;
    plan.advice = "fits with --ctx 512";
    return std::vector<pool::MemoryPlan>{plan};
  };
  sources.worker_flags = [](const contract::MemoryNeed& need) {
    return std::vector<std::string>{"--ctx", std::to_string(need.context)};
  };
  sources.keep_measurement = [](const contract::ModelEntry&, std::string_view,
                                const contract::MemoryNeed&, std::int64_t) { return ok_status(); };
  sources.vram_of_process = [](std::int32_t, std::int64_t) { return std::int64_t{0}; };
  return sources;
}

http::ErrorBody render(const Error& error, std::string_view correlation_id) {
  contract::RenderedError rendered = contract::render_error(error, correlation_id);
  return {rendered.status, "application/json", std::move(rendered.body), {}};
}

std::string read_all(const fs::path& file) {
  // Through a stream, which takes it for the end when the process behind the file is gone.
  const std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

pool::PoolManagerOptions make_pool_options(const fs::path& root, std::string callback_url) {
  pool::PoolManagerOptions options;
  options.home = {root / "config.toml", root, root, root / "cache"};
  options.planner.worker_cpu = LLORCH_FAKE_WORKER;
  options.planner.worker_cuda = LLORCH_FAKE_WORKER;
  options.keeper = LLORCH_TEST_POOL;
  options.callback_url = std::move(callback_url);
  options.first_port = some_port();
  options.timing.health_interval = milliseconds(30);
  options.timing.health_timeout = milliseconds(1'000);
  options.timing.health_failures = 3;
  options.timing.token_patience = milliseconds(300);
  options.timing.idle_probe = milliseconds(0);
  options.timing.ready_base = milliseconds(20'000);
  options.timing.drain_patience = milliseconds(3'000);
  options.timing.drain_grace = milliseconds(500);
  options.timing.term_patience = milliseconds(3'000);
  options.timing.kill_patience = milliseconds(3'000);
  options.timing.reclaim_patience = milliseconds(500);
  options.timing.orphan_patience = milliseconds(60'000);
  options.environment = [home = root.string()](const char* name) -> const char* {
    return std::string_view(name) == "HOME" ? home.c_str() : nullptr;
  };
  options.sources = made_up_sources(root);
  return options;
}

void add_model(const fs::path& root, const std::string& name) {
  fs::create_directories(root / "models");
  std::ofstream(root / "models" / name) << "weights";
}

CallbackServer::CallbackServer() {
  http::Router router;
  router.add(http::Method::Post, "/ready",
             http::PlainHandler([this](const http::Request& request) { return take(request); }));
  http::ServerOptions options;
  options.render_error = render;
  Result<std::unique_ptr<http::Server>> server = http::Server::start(std::move(router), options);
  CHECK(server.ok(), "no server for the callbacks of this test");
  server_ = server.take();
}

std::string CallbackServer::url() const {
  return fmt::format("http://127.0.0.1:{}/ready", server_->port());
}

void CallbackServer::attach(pool::PoolManager* manager) {
  const base::MutexLock lock(mutex_);
  manager_ = manager;
}

Result<http::Response> CallbackServer::take(const http::Request& request) {
  const Result<contract::ReadyCallback> callback = contract::parse_ready_callback(request.body);
  if (!callback.ok()) return callback.error();
  const base::MutexLock lock(mutex_);
  if (manager_ == nullptr) return Error{ErrorCode::Unavailable, "no manager"};
  const Status taken = manager_->worker_ready(
      *callback, request.headers.find(contract::kWorkerMarkHeader).value_or(""));
  if (!taken.ok()) return taken.error();
  return http::Response(200, "application/json", "{}");
}

std::vector<int> processes_naming(const std::string& text) {
  std::vector<int> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    int pid = 0;
    std::from_chars(name.data(), name.data() + name.size(), pid);
    if (pid <= 0 || pid == ::getpid()) continue;
    const bool names_it = read_all(entry.path() / "cmdline").find(text) != std::string::npos;
    if (names_it && base::identify_process(pid)) found.push_back(pid);
  }
  return found;
}

bool eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

PoolFixture::PoolFixture() : options(make_pool_options(folder_.path(), callback_.url())) {
  base::configure_log({base::LogFormat::Pretty, base::LogLevel::Off});
}

PoolFixture::~PoolFixture() {
  if (manager_) {
    manager_->stop_all({});
    detach();
  }
  EXPECT_TRUE(eventually([this] { return processes_naming(root().string()).empty(); }))
      << "a process was left behind";
  for (const int pid : processes_naming(root().string())) ::kill(pid, SIGKILL);
}

void PoolFixture::start() {
  detach();
  Result<std::unique_ptr<pool::PoolManager>> manager = pool::PoolManager::start(options);
  ASSERT_TRUE(manager.ok()) << manager.error().message;
  manager_ = manager.take();
  callback_.attach(manager_.get());
}

void PoolFixture::detach() {
  callback_.attach(nullptr);
  manager_.reset();
}

Result<contract::PoolWorker> PoolFixture::start_worker(const std::string& model,
                                                       const std::string& backend) {
  if (model != "builtin") add_model(root(), model);
  return manager_->start_worker({.backend = backend, .model = model});
}

contract::PoolWorker PoolFixture::worker(const std::string& id) {
  const Result<contract::PoolWorker> found = manager_->worker(id);
  return found.ok() ? *found : contract::PoolWorker{};
}

bool PoolFixture::wait_for(const std::string& id, contract::PoolWorkerState state) {
  const bool came = eventually([&] {
    const contract::PoolWorker now = worker(id);
    return !now.id.empty() && now.state == state;
  });
  if (!came) {
    const contract::PoolWorker now = worker(id);
    ADD_FAILURE() << id << " is " << contract::name(now.state) << ", not " << contract::name(state)
                  << ": " << now.reason << "\n"
                  << log(id);
  }
  return came;
}

std::string PoolFixture::ready_worker(const std::string& model) {
  const Result<contract::PoolWorker> started = start_worker(model);
  EXPECT_TRUE(started.ok()) << started.error().message;
  if (!started.ok()) return {};
  EXPECT_TRUE(wait_for(started->id, contract::PoolWorkerState::Ready));
  return started->id;
}

std::string PoolFixture::log(const std::string& id) const {
  return read_all(options.home.logs() / (id + ".log"));
}

}  // namespace llorch::test
