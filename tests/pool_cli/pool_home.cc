#include "pool_cli/pool_home.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "base/home.h"
#include "base/process_table.h"
#include "pool/run.h"

namespace llorch::test {
namespace {

base::Home home_of(const std::filesystem::path& folder) {
  base::Home home;
  home.data = folder;
  home.state = folder;
  return home;
}

// Also of a process that ends meanwhile, where reading fails in the middle.
static std::string read_process_file(const std::filesystem::path& path) {
  const std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<int> processes_naming(const std::string& text) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string line = read_process_file(entry.path() / "cmdline");
    const int pid = std::stoi(name);
    if (line.find(text) != std::string::npos && base::identify_process(pid)) found.push_back(pid);
  }
  return found;
}

}  // namespace

bool eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

PoolHome::PoolHome() {
  std::ofstream(folder_ / "config.toml") << "[pool]\nport = 0\n[worker]\nthreads = 1\n";
}

PoolHome::~PoolHome() {
  const ProgramOutcome stopped = pool({"stop"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_TRUE(eventually([this] { return managers().empty(); })) << "a manager was left behind";
  // Keepers have their record's path on the command line.
  EXPECT_TRUE(eventually([this] { return processes_naming(folder_.path().string()).empty(); }))
      << "a process was left behind";
  for (const std::int64_t pid : seen_workers_) {
    EXPECT_TRUE(eventually([pid] { return !base::identify_process(static_cast<int>(pid)); }))
        << "worker process " << pid;
  }
  for (const int pid : managers()) ::kill(pid, SIGKILL);
  for (const int pid : processes_naming(folder_.path().string())) ::kill(pid, SIGKILL);
}

std::vector<std::string> PoolHome::environment() const {
  return {"LLORCH_HOME=" + folder_.path().string(),
          "LLORCH_POOL=", "LLORCH_TOKEN=", "LLORCH_CONFIG=", "NO_COLOR=1"};
}

ProgramOutcome PoolHome::pool(std::vector<std::string> arguments) const {
  return run_program(LLORCH_POOL, std::move(arguments), environment());
}

ProgramOutcome PoolHome::llorch(std::vector<std::string> arguments) const {
  return run_program(LLORCH, std::move(arguments), environment());
}

json::Value PoolHome::pool_json(std::vector<std::string> arguments) const {
  arguments.emplace_back("--json");
  const ProgramOutcome outcome = pool(std::move(arguments));
  Result<json::Value> value = json::parse(outcome.out);
  EXPECT_TRUE(value.ok()) << outcome.out << outcome.err;
  return value.ok() ? value.take() : json::Value();
}

std::vector<contract::PoolWorker> PoolHome::workers() const {
  std::vector<contract::PoolWorker> workers;
  const json::Value list = pool_json({"worker", "list"});
  for (const json::Value& value : list.at("workers").as_array()) {
    Result<contract::PoolWorker> worker = contract::parse_pool_worker(value);
    EXPECT_TRUE(worker.ok()) << worker.error().message;
    if (worker.ok()) workers.push_back(worker.take());
    if (!workers.empty() && workers.back().pid > 0) seen_workers_.push_back(workers.back().pid);
  }
  return workers;
}

std::vector<int> PoolHome::managers() const {
  std::vector<int> found;
  for (const int pid : base::processes_with_variable("LLORCH_HOME=" + folder_.path().string())) {
    const std::string line = read_process_file("/proc/" + std::to_string(pid) + "/cmdline");
    const bool is_manager = line.find("pool-managerd") != std::string::npos ||
                            line.find(std::string("\0serve\0", 7)) != std::string::npos;
    if (is_manager && base::identify_process(pid)) found.push_back(pid);
  }
  return found;
}

std::string PoolHome::url() const {
  const auto address = pool::read_pool_address(home_of(folder_.path()));
  return address ? address->url : "";
}

int PoolHome::status_of(const http::ClientRequest& request) const {
  http::Client client({.more_ca_file = (folder_.path() / "tls" / "ca.pem").string()});
  const Result<http::Response> response = client.send(request);
  return response.ok() ? response->status : 0;
}

}  // namespace llorch::test
