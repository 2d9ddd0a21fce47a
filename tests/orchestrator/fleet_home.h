// A home of its own with an orchestrator in it, asked over HTTP as a client would. The orchestrator
// starts the pool by itself; both are gone at the end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "http/client.h"
#include "http/sse.h"
#include "support/child_process.h"
#include "support/test_paths.h"

namespace llorch::test {

struct Answer {
  int status = 0;
  json::Value body;
  http::Headers headers;

  std::string text(std::string_view field) const;
  double number(std::string_view field) const;
};

// The events of a task until its end, or until `enough` says so.
struct Followed {
  int status = 0;
  std::vector<http::SseEvent> events;
  std::string text;  // of all token events

  std::size_t count(std::string_view event) const;
  const http::SseEvent* find(std::string_view event) const;
};

class FleetHome {
 public:
  // `environment`: what the programs have beside this process's own, each "NAME=value".
  explicit FleetHome(std::vector<std::string> flags = {},
                     std::vector<std::string> environment = {});
  ~FleetHome();

  // Starts the orchestrator, and waits until it is healthy and its host is connected.
  void start();
  void kill();                // SIGKILL
  std::optional<int> stop();  // SIGTERM; its exit code

  const std::string& url() const { return url_; }
  Answer get(std::string_view path, const http::Headers& headers = {});
  Answer post(std::string_view path, const json::Object& body, const http::Headers& headers = {});
  Answer remove(std::string_view path, const http::Headers& headers = {});

  // Submits, and returns the job's id; a failure of the test where it was refused.
  std::string submit(const json::Object& body);
  Followed follow(std::string_view job, std::string_view last_event_id = {},
                  const std::function<bool(const Followed&)>& enough = nullptr);
  // Of one of this host's workers ("worker-cpu-0", also with "local/" before it); 0 fails the test.
  pid_t pid_of_worker(std::string_view worker);
  std::string pool_url();
  // Asks again and again; false once it has waited too long.
  bool wait_until(const std::function<bool()>& condition);
  std::string err() const { return orchestrator_ ? orchestrator_->err() : std::string(); }
  const TempDir& folder() const { return folder_; }

 private:
  Answer send(http::Method method, std::string_view path, const json::Object* body,
              const http::Headers& headers);
  TempDir folder_;
  const std::vector<std::string> flags_;
  const std::vector<std::string> environment_;
  std::unique_ptr<ChildProcess> orchestrator_;
  std::string url_;
  http::Client client_;
};

// A request that the built-in model answers the same way each time.
json::Object story(int max_tokens);

}  // namespace llorch::test
