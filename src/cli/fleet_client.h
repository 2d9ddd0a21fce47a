// The orchestrator, asked over HTTP, and how a command finds or starts it. Private to cli/.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "api/daemon_address.h"
#include "base/home.h"
#include "base/result.h"
#include "contract/fleet_api.h"
#include "http/sse.h"
#include "pool_client/pool_client.h"

namespace llorch::cli {

// Which orchestrator a command means.
struct FleetTarget {
  base::Home home;
  std::string url;        // named by the user; empty: the one of this home
  std::string token;      // may be empty
  std::string ca_file{};  // for https, and no other authority; empty: the system's and this home's
};

// How long an orchestrator that went away may need to come back, and whether an error says that.
inline constexpr std::chrono::seconds kReturnPatience{60};
bool may_return(const Error& error);

// The error behind those of single fields, in one sentence for people.
Error answer_error(const std::vector<json::FieldError>& errors);

// Every call blocks, and any thread may make one.
class FleetClient {
 public:
  explicit FleetClient(const FleetTarget& target, std::string url);
  explicit FleetClient(const FleetTarget& target, const api::DaemonAddress& address);

  const std::string& url() const { return url_; }  // for people and other programs
  // Endpoints whose answers are only passed on.
  const pool_client::PoolClient& calls() const { return calls_; }

  // An answer as one of contract/fleet_api.h.
  template <class T>
  static Result<T> read(const Result<json::Value>& answer) {
    if (!answer.ok()) return answer.error();
    const json::Object* object = answer->if_object();
    if (object == nullptr)
      return Error{ErrorCode::Internal, "the orchestrator's answer is no object"};
    std::vector<json::FieldError> errors;
    T value = contract::read_described<T>(*object, errors, true);
    if (!errors.empty()) return answer_error(errors);
    return value;
  }
  template <class T>
  Result<T> get(std::string_view path, const pool_client::CallLimits& limits = {}) const {
    return read<T>(calls_.get(path, limits));
  }
  template <class T>
  Result<T> post(std::string_view path, const json::Object& body) const {
    return read<T>(calls_.post(path, body));
  }
  template <class T>
  Result<T> remove(std::string_view path, const pool_client::CallLimits& limits = {}) const {
    return read<T>(calls_.remove(path, limits));
  }

  // Every event of a job until its last one (`on_event` returns false), from the position `after`
  // on (empty: from the beginning). A connection that breaks is made again behind the last event,
  // for as long as the orchestrator may need to come back; `on_pause` is told each time.
  Status follow(std::string_view job, std::string after,
                const std::function<bool(const http::SseEvent& event)>& on_event,
                const std::function<void(const Error& why)>& on_pause, std::stop_token stop) const;

  // One that is started again may listen elsewhere. Nothing: it is where it was, or nowhere.
  std::optional<FleetClient> find_again() const;

 private:
  std::string url_;
  std::optional<FleetTarget> home_target_;  // of this home's orchestrator
  pool_client::PoolClient calls_;
};

// Where the orchestrator of this home says that it listens.
std::filesystem::path orchestrator_address_file(const base::Home& home);
std::optional<api::DaemonAddress> read_orchestrator_address(const base::Home& home);

// The one named, else the one of this home. NotFound when there is none; of one that is named and
// does not answer, Unavailable.
Result<FleetClient> find_orchestrator(const FleetTarget& target);

// The same, but where there is none for this home it is started: `orchestratord` beside us, in a
// session of its own, its log in Home::logs()/orchestrator.log. Two that come at once start one.
struct FoundOrchestrator {
  FleetClient client;
  bool was_started = false;
};
Result<FoundOrchestrator> find_or_start_orchestrator(const FleetTarget& target);

// The key that `llorch up` made for this user, where it did: Home::data/key, for nobody else to
// read.
std::filesystem::path key_file(const base::Home& home);
std::optional<std::string> read_own_key(const base::Home& home);

}  // namespace llorch::cli
