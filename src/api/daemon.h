// What our daemons have in common from their options to their end: bind, run until somebody asks
// them to stop, drain.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/wakeups.h"
#include "http/router.h"
#include "http/server.h"

namespace llorch::api {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitInterrupted = 130;  // a second signal ended the patience

// "program: what went wrong" for people, on stderr. Returns kExitFailure.
int report_failure(std::string_view program, const Error& error);

struct ListenOptions {
  std::string host;
  std::uint16_t port = 0;
  bool any_port = false;       // a free one where that is taken
  std::string api_token_file;  // empty: no token
  // Many tokens instead: see http::ServerOptions.
  std::function<bool(std::string_view token)> accepts_token = nullptr;
  std::function<void(const std::string& key, const http::Request& request)> on_stranger = nullptr;
  std::vector<std::string> allow_origins;
  std::vector<std::string> paths_without_auth;
  std::vector<std::string> fields_of_known{};  // see http::ServerOptions
  std::string tls_certificate_file{};          // with tls_key_file: TLS; PEM
  std::string tls_key_file{};
  int io_threads = 2;
  std::size_t descriptor_reserve = 256;  // what connections leave to everything else
};

// A server that listens: the token is read, the limit of descriptors raised, and errors have the
// contract's envelope. `make_router` is called for each port that is tried.
Result<std::unique_ptr<http::Server>> start_server(const std::function<http::Router()>& make_router,
                                                   const ListenOptions& options);

// "http://[::1]:8000".
std::string server_url(const std::string& host, std::uint16_t port, bool is_tls = false);
// How programs of this machine reach a server that listens on `host`: every address means loopback
// to them.
std::string local_url(const std::string& host, std::uint16_t port, bool is_tls);

// The main thread of a daemon: it waits for signals and for what other threads ask. Make it before
// any of them. All but request_end and wake belong to that thread.
class MainLoop {
 public:
  // The daemon is to end; any thread.
  void request_end();
  bool is_end_requested() const { return end_requested_; }
  void wake() const { wakeups_.wake(); }  // any thread

  // Returns at a signal, at request_end(), or when `look` says so: it is asked at each wake and
  // every `interval` (negative: at wakes alone).
  void run(std::chrono::milliseconds interval, const std::function<bool()>& look);

  // True when a signal came within `patience`.
  bool wait_for_signal(std::chrono::milliseconds patience) const;

  // Runs `work` on `thread`, by its name in the system's lists, and waits for its end; false when a
  // signal came first, and the work goes on.
  bool run_until_signal(std::jthread& thread, const char* name, std::function<void()> work);

 private:
  base::Wakeups wakeups_;
  std::atomic<bool> end_requested_ = false;
  std::atomic<bool> work_done_ = false;
};

}  // namespace llorch::api
