// A running llorch-cpud and what a client needs to speak to it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "contract/error_table.h"
#include "contract/inference.h"
#include "contract/worker_info.h"
#include "http/client.h"
#include "http/sse.h"
#include "support/child_process.h"
#include "worker/test_model.h"

namespace llorch::test {

json::Value parse(std::string_view text);  // a failure of the test where it is no JSON

// What one stream of /execute said, checked for its form: started, tokens with contiguous i, then
// exactly one of end and error.
struct ExecuteOutcome {
  int status = 0;    // of HTTP
  std::string body;  // of an answer that is no stream
  std::optional<contract::StartedEvent> started;
  std::vector<std::string> tokens;
  std::optional<contract::InferenceResult> end;
  std::optional<Error> error;
  std::string text() const;
};

class WorkerFixture {
 public:
  // Starts and waits until it listens. Flags are added to --worker-id, --model, --port 0.
  explicit WorkerFixture(const TestModelSize& size = kQuick, std::vector<std::string> flags = {});
  WorkerFixture(std::filesystem::path model, std::vector<std::string> flags);

  bool wait_until_healthy();
  std::uint16_t port() const { return port_; }
  std::string url(std::string_view path) const;
  std::string authority() const;  // "127.0.0.1:8000"
  ChildProcess& process() { return *process_; }

  http::Response get(std::string_view path) const;
  http::Response post(std::string_view path, std::string_view body,
                      const http::Headers& headers = {}) const;
  contract::HealthReport health() const;
  // A counter or gauge of /metrics.
  double metric(std::string_view name) const;
  // Nothing runs, nothing waits, every block is free.
  bool wait_until_idle(std::chrono::milliseconds patience = std::chrono::seconds(20)) const;
  bool wait_until_busy(int slots) const;

  ExecuteOutcome execute(std::string_view body, const http::Headers& headers = {}) const;

 private:
  void start(std::vector<std::string> flags);

  TempDir folder_;
  std::filesystem::path model_;
  std::unique_ptr<ChildProcess> process_;
  std::uint16_t port_ = 0;
};

std::string cpud_program();

// A prompt of about that many tokens: each word is a token or more.
std::string long_prompt(std::size_t words);

}  // namespace llorch::test
