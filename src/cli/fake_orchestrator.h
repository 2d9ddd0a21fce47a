// Tests only: an orchestrator whose answers are written in the test, and the program that asks it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "contract/error_table.h"
#include "http/server.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::cli {

class FakeOrchestrator {
 public:
  using Handler = std::function<Result<http::Response>(const http::Request& request)>;

  FakeOrchestrator() { answer(http::Method::Get, "/health", R"({"status":"healthy"})"); }
  void on(http::Method method, const std::string& path, Handler handler) {
    router_.add(method, path,
                http::PlainHandler([this, method, path, handler = std::move(handler)](
                                       const http::Request& request) -> Result<http::Response> {
                  {
                    const base::MutexLock lock(mutex_);
                    seen_.push_back(fmt::format("{} {}", method_name(method), request.path));
                    if (!request.body.empty()) bodies_.push_back(request.body);
                  }
                  return handler(request);
                }));
  }
  void answer(http::Method method, const std::string& path, const std::string& body,
              int status = 200, const std::string& type = "application/json") {
    on(method, path, [=](const http::Request&) -> Result<http::Response> {
      return http::Response(status, type, body);
    });
  }
  void events(const std::string& path, const std::string& text) {
    answer(http::Method::Get, path, text, 200, "text/event-stream");
  }

  const std::string& url() {
    if (!server_) {
      http::ServerOptions options;
      options.render_error = [](const Error& error, std::string_view correlation_id) {
        contract::RenderedError rendered = contract::render_error(error, correlation_id);
        return http::ErrorBody{rendered.status, "application/json", std::move(rendered.body), {}};
      };
      server_ = http::Server::start(std::move(router_), std::move(options)).take();
      url_ = fmt::format("http://127.0.0.1:{}", server_->port());
    }
    return url_;
  }

  test::ProgramOutcome run(std::vector<std::string> words) {
    return test::run_program(LLORCH, std::move(words), environment());
  }
  std::vector<std::string> environment() {
    return {"LLORCH_ORCHESTRATOR=" + url(), "LLORCH_HOME=" + (folder_ / "home").string()};
  }
  std::vector<std::string> bodies() const {
    const base::MutexLock lock(mutex_);
    return bodies_;
  }
  bool was_asked(const std::string& what) const {
    const base::MutexLock lock(mutex_);
    return std::find(seen_.begin(), seen_.end(), what) != seen_.end();
  }
  std::filesystem::path operator/(std::string_view name) const { return folder_ / name; }

 private:
  test::TempDir folder_;
  mutable base::Mutex mutex_;
  std::vector<std::string> seen_ LLORCH_GUARDED_BY(mutex_);
  std::vector<std::string> bodies_ LLORCH_GUARDED_BY(mutex_);
  http::Router router_;
  std::unique_ptr<http::Server> server_;
  std::string url_;
};

}  // namespace llorch::cli
