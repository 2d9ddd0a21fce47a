#include "api/daemon.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "api/answers.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/terminal.h"
#include "base/thread.h"
#include "contract/api_token.h"
#include "http/url.h"

namespace llorch::api {
namespace {

const base::Logger& logger() {
  static const base::Logger instance("api");
  return instance;
}

}  // namespace

int report_failure(std::string_view program, const Error& error) {
  // Not by fmt::print, which throws where the stream takes nothing: a log on a full disk.
  std::fputs(fmt::format("{}: {}\n", program, base::printable(error.message)).c_str(), stderr);
  return kExitFailure;
}

Result<std::unique_ptr<http::Server>> start_server(const std::function<http::Router()>& make_router,
                                                   const ListenOptions& options) {
  Result<std::string> token = contract::read_api_token(options.api_token_file);
  if (!token.ok()) return token.error().in("--api-token-file");
  http::ServerOptions server;
  server.host = options.host;
  server.port = options.port;
  server.io_threads = options.io_threads;
  server.render_error = render_error;
  server.bearer_token = token.take();
  server.accepts_token = options.accepts_token;
  server.on_stranger = options.on_stranger;
  server.max_connections =
      base::connections_within(base::raise_descriptor_limit(), options.descriptor_reserve);
  server.allowed_origins = options.allow_origins;
  server.paths_without_auth = options.paths_without_auth;
  server.fields_of_known = options.fields_of_known;
  server.tls_certificate_file = options.tls_certificate_file;
  server.tls_key_file = options.tls_key_file;
  Result<std::unique_ptr<http::Server>> started = http::Server::start(make_router(), server);
  if (started.ok() || !options.any_port || server.port == 0) return started;
  logger().info("the port is taken: a free one instead", {{"port", server.port}});
  server.port = 0;
  return http::Server::start(make_router(), std::move(server));
}

std::string server_url(const std::string& host, std::uint16_t port, bool is_tls) {
  return (is_tls ? "https://" : "http://") + http::Url{host, port, "/"}.authority();
}

std::string local_url(const std::string& host, std::uint16_t port, bool is_tls) {
  if (!http::is_any_address(host)) return server_url(host, port, is_tls);
  return server_url(host == "::" ? "::1" : "127.0.0.1", port, is_tls);
}

void MainLoop::request_end() {
  end_requested_ = true;
  wakeups_.wake();
}

void MainLoop::run(std::chrono::milliseconds interval, const std::function<bool()>& look) {
  while (!wait_for_signal(interval) && !end_requested_ && !look()) {
  }
}

bool MainLoop::wait_for_signal(std::chrono::milliseconds patience) const {
  return wakeups_.wait_for_signal(static_cast<int>(patience.count()));
}

bool MainLoop::run_until_signal(std::jthread& thread, const char* name,
                                std::function<void()> work) {
  work_done_ = false;
  thread = base::start_thread(name, [this, work = std::move(work)] {
    work();
    work_done_ = true;
    wakeups_.wake();
  });
  while (!work_done_) {
    if (wakeups_.wait_for_signal(-1)) return false;
  }
  return true;
}

}  // namespace llorch::api
