// For tests: an orchestrator beyond loopback, in a home of its own, as curl and llorch meet it.
#pragma once

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "api/daemon_address.h"
#include "base/process_table.h"
#include "support/child_process.h"
#include "support/eventually.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::test {

// An address of this machine that is not loopback; empty: it has none.
inline std::string own_address() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  std::string found;
  for (const ifaddrs* one = list; one != nullptr && found.empty(); one = one->ifa_next) {
    const bool is_usable = one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET &&
                           (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_usable) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    found = text.data();
  }
  ::freeifaddrs(list);
  return found;
}

class Doors : public ::testing::Test {
 protected:
  void SetUp() override {
    address_ = own_address();
    if (address_.empty())
      GTEST_SKIP() << "THIS MACHINE HAS NO ADDRESS BUT LOOPBACK: nothing is tested here";
  }
  void TearDown() override {
    stop();
    stop_pool(folder_);
  }
  static void stop_pool(const TempDir& home) {
    const auto pool = api::read_daemon_address(home / "pool.json");
    if (!pool) return;
    ::kill(pool->process.pid, SIGTERM);
    EXPECT_TRUE(eventually([&pool] { return !base::is_running(pool->process); }));
  }

  std::vector<std::string> home() const {
    return {"LLORCH_HOME=" + folder_.path().string(), "LLORCH_POOL_PORT=0"};
  }
  // Where it says that it listens; empty: it does not start.
  std::string start(std::vector<std::string> flags, const std::string& port = "0") {
    flags.insert(flags.end(), {"--port", port, "--log-format", "json"});
    orchestrator_ = std::make_unique<ChildProcess>(LLORCH_ORCHESTRATORD, std::move(flags), home());
    constexpr std::string_view kSays = "listening on ";
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < until && orchestrator_->is_running()) {
      const std::string out = orchestrator_->out();
      const std::size_t at = out.find(kSays);
      if (at != std::string::npos && out.find('\n', at) != std::string::npos)
        return when_ready(out.substr(at + kSays.size(), out.find('\n', at) - at - kSays.size()));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return {};
  }
  // It listens before it has looked at its hosts; what is asked until then is told to wait.
  std::string when_ready(std::string url) {
    const bool is_ready = eventually(
        [this] { return orchestrator_->err().find("\"message\":\"ready\"") != std::string::npos; });
    EXPECT_TRUE(is_ready) << orchestrator_->err();
    return url;
  }
  void stop() {
    if (!orchestrator_) return;
    orchestrator_->signal(SIGTERM);
    orchestrator_->wait();
    orchestrator_.reset();
  }
  ProgramOutcome llorch(std::vector<std::string> arguments,
                        std::vector<std::string> environment = {}) const {
    const std::vector<std::string> own = home();
    environment.insert(environment.end(), own.begin(), own.end());  // the first of a name counts
    return run_program(LLORCH_CLI, std::move(arguments), std::move(environment));
  }
  static ProgramOutcome curl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"-sS", "--noproxy", "*", "--max-time", "60"});
    return run_program("/usr/bin/curl", std::move(arguments));
  }
  // A key, made while nobody else can listen.
  std::string make_key() {
    EXPECT_THAT(start({"--local-pool", "false"}), ::testing::StartsWith("http://127.0.0.1:"));
    const std::string key = add_key("laptop", "infer");
    stop();
    return key;
  }
  std::string add_key(const std::string& name, const std::string& scope) const {
    ProgramOutcome made = llorch({"keys", "add", name, "--scope", scope});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    while (made.out.ends_with('\n')) made.out.pop_back();
    return made.out;
  }
  std::string ca() const { return (folder_ / "tls" / "ca.pem").string(); }

  const TempDir folder_;
  std::string address_;
  std::unique_ptr<ChildProcess> orchestrator_;
};

}  // namespace llorch::test
