#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <utility>

#include "api/metrics_text.h"
#include "base/terminal.h"
#include "base/version.h"
#include "contract/error_table.h"
#include "contract/fleet_api.h"
#include "contract/request_body.h"
#include "contract/worker_api.h"
#include "orchestrator/endpoint_table.h"
#include "orchestrator/find_model.h"
#include "orchestrator/joined_hosts.h"
#include "orchestrator/views.h"
#include "remote/ssh.h"

namespace llorch::orchestrator {
namespace {

double uptime_seconds(const RouteParts& parts) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - parts.started).count();
}

// Names are shown in tables, logs and metrics: nothing in them may command a terminal.
void check_key_texts(const contract::KeyRequest& wanted, std::vector<json::FieldError>& errors) {
  const auto check = [&errors](const char* field, const std::string& text) {
    if (base::printable(text) == text) return;
    errors.push_back({field, "printable", "must be text without control characters", {}});
  };
  check("name", wanted.name);
  for (const std::string& glob : wanted.models) check("models", glob);
}

// Pools are read on the owner's thread, where questions are answered.
FindDetails details_of(const RouteParts& parts) {
  return [&pools = parts.pools](const fleet::HostId& host) { return pools.find_details(host); };
}

template <class T>
http::Task<Status> answer_from_owner(
    const RouteParts& parts, http::Responder& responder,
    std::function<Result<T>(const fleet::Fleet&, fleet::TimePoint)> question) {
  Result<T> answer = co_await parts.core.ask_for<T>(std::move(question));
  if (!answer.ok()) co_return answer.error();
  http::Response response = described_response(200, *answer);
  co_return co_await responder.send(std::move(response));
}

Result<contract::HostView> find_view(const fleet::Fleet& fleet, const FindDetails& details,
                                     fleet::TimePoint now, const std::string& name) {
  for (contract::HostView& host : list_hosts(fleet, details, now).hosts) {
    if (host.name == name) return std::move(host);
  }
  return Error{ErrorCode::NotFound,
               "there is no host '" + name + "'; `llorch hosts` shows those there are"};
}

http::Task<Status> send_host(const RouteParts& parts, int status, std::string name,
                             http::Responder& responder) {
  std::function<Result<contract::HostView>(const fleet::Fleet&, fleet::TimePoint)> look =
      [details = details_of(parts), name](const fleet::Fleet& fleet, fleet::TimePoint now) {
        return find_view(fleet, details, now, name);
      };
  Result<contract::HostView> view =
      co_await parts.core.ask_for<contract::HostView>(std::move(look));
  if (!view.ok()) co_return view.error();
  http::Response response = described_response(status, *view);
  co_return co_await responder.send(std::move(response));
}

contract::KeyView view_key(const StoredKey& key) {
  contract::KeyView view;
  view.id = fleet::text(key.id);
  view.name = key.facts.name;
  view.scope = fleet::name(key.facts.scope);
  view.models = key.facts.models;
  view.tokens_per_day = key.facts.tokens_per_day;
  view.requests_per_minute = key.facts.requests_per_minute;
  view.revoked = key.facts.revoked;
  view.created_at = time_text(key.created_ms);
  return view;
}

void add_usage(const fleet::Fleet& fleet, contract::KeyView& view) {
  const std::optional<fleet::KeyId> id = fleet::key_id_from_text(view.id);
  const auto found = id ? fleet.key_by_id.find(*id) : fleet.key_by_id.end();
  if (found == fleet.key_by_id.end()) return;
  const fleet::Key& key = fleet.keys[found->second];
  const std::int64_t today = fleet::wall_ms(fleet, std::chrono::steady_clock::now()) / 86'400'000;
  view.tokens_today = key.usage.day == today ? key.usage.tokens_today : 0;
  view.tokens_ever = key.usage.tokens_ever;
  view.jobs_ever = key.usage.jobs_ever;
  view.jobs_now = static_cast<std::int64_t>(key.jobs);
}

struct MetricRow {
  std::string_view name;
  std::string_view type;
  std::string_view help;
  double value;
};

std::string fleet_metrics(const fleet::Fleet& fleet, const contract::FleetStatus& status) {
  const fleet::FleetCounters& counters = fleet.counters;
  const auto number = [](auto value) { return static_cast<double>(value); };
  const std::vector<MetricRow> rows = {
      {"llorch_jobs_submitted_total", "counter", "Jobs that were accepted.",
       number(counters.submitted)},
      {"llorch_jobs_refused_total", "counter", "Jobs that were refused.", number(counters.refused)},
      {"llorch_jobs_completed_total", "counter", "Jobs that ended well.",
       number(counters.completed)},
      {"llorch_jobs_failed_total", "counter", "Jobs that failed.", number(counters.failed)},
      {"llorch_jobs_cancelled_total", "counter", "Jobs that were cancelled.",
       number(counters.cancelled)},
      {"llorch_attempts_total", "counter", "Tries of jobs on workers.", number(counters.attempts)},
      {"llorch_moves_total", "counter", "Jobs that went on elsewhere after a loss.",
       number(counters.moves)},
      {"llorch_loads_total", "counter", "Workers that were ordered.", number(counters.loads)},
      {"llorch_evictions_total", "counter", "Workers that made room.", number(counters.evictions)},
      {"llorch_late_events_total", "counter", "Events about what is no more.",
       number(counters.late_events)},
      {"llorch_jobs_queued", "gauge", "Jobs that wait.", number(status.queued)},
      {"llorch_jobs_running", "gauge", "Jobs that were sent to a worker.", number(status.running)},
      {"llorch_body_bytes", "gauge", "Requests of live jobs.", number(fleet.body_bytes)},
      {"llorch_workers", "gauge", "Workers of all hosts.", number(status.workers.size())},
      {"llorch_boot", "gauge", "Starts of an orchestrator on this store.", number(fleet.boot)}};
  std::string out;
  for (const MetricRow& row : rows) api::append_value(out, row.name, row.type, row.help, row.value);
  api::append_head(out, "llorch_hosts", "gauge", "Hosts by their state.");
  for (std::uint8_t state = 0; state <= static_cast<std::uint8_t>(fleet::HostState::Gone);
       ++state) {
    const std::string_view name = fleet::name(static_cast<fleet::HostState>(state));
    const auto count = std::count_if(status.hosts.begin(), status.hosts.end(),
                                     [name](const auto& host) { return host.state == name; });
    fmt::format_to(std::back_inserter(out), "llorch_hosts{{state=\"{}\"}} {}\n", name, count);
  }
  api::append_head(out, "llorch_model_waiting", "gauge", "Jobs that wait for a model.");
  for (const contract::FleetModel& model : status.models) {
    fmt::format_to(std::back_inserter(out), "llorch_model_waiting{{model=\"{}\"}} {}\n",
                   api::label(model.name), model.waiting);
  }
  api::append_head(out, "llorch_key_tokens_total", "counter", "Tokens of each key, ever.");
  for (const fleet::Key& key : fleet.keys) {
    fmt::format_to(std::back_inserter(out),
                   "llorch_key_tokens_total{{key=\"{}\",name=\"{}\"}} {}\n", fleet::text(key.id),
                   api::label(key.facts.name), key.usage.tokens_ever);
  }
  return out;
}

}  // namespace

// --- hosts, models, workers ---

http::Task<Status> show_hosts(const RouteParts& parts, Caller, const http::Request&,
                              http::Responder& responder) {
  return answer_from_owner<contract::HostList>(
      parts, responder,
      [details = details_of(parts)](const fleet::Fleet& fleet, fleet::TimePoint now) {
        return Result<contract::HostList>(list_hosts(fleet, details, now));
      });
}

http::Task<Status> show_pools(const RouteParts& parts, Caller, const http::Request&,
                              http::Responder& responder) {
  return answer_from_owner<contract::PoolList>(
      parts, responder, [details = details_of(parts)](const fleet::Fleet& fleet, fleet::TimePoint) {
        contract::PoolList list;
        for (const fleet::Host& host : fleet.hosts) {
          const HostDetails* known = details(host.id);
          if (known == nullptr) continue;
          list.pools.push_back({host.id, known->pool.url, known->pool_id, known->version,
                                std::string(fleet::name(host.facts.state))});
        }
        return Result<contract::PoolList>(std::move(list));
      });
}

http::Task<Status> show_host(const RouteParts& parts, Caller, const http::Request& request,
                             http::Responder& responder) {
  co_return co_await send_host(parts, 200, path_param(request, "host"), responder);
}

http::Task<Status> raise_host(const RouteParts& parts, Caller caller, const http::Request& request,
                              http::Responder& responder) {
  std::string name;
  if (request.path_params.contains("host")) {
    name = path_param(request, "host");
  } else {
    const Result<json::Object> body = read_body(request);
    if (!body.ok()) co_return body.error();
    std::vector<json::FieldError> errors;
    name = contract::read_described<contract::HostRequest>(*body, errors).host;
    if (!errors.empty()) {
      http::Response failures = failures_response(request, std::move(errors));
      co_return co_await responder.send(std::move(failures));
    }
  }
  const bool is_local = name == kLocalHost;
  if (!is_local) {
    const Result<remote::SshHost> good = remote::SshHost::make(name, "/run");
    if (!good.ok()) co_return good.error();
    std::function<Result<fleet::Revision>()> keep = [&store = parts.store,
                                                     name]() -> Result<fleet::Revision> {
      const Result<std::vector<fleet::Entry>> hosts = store.list(fleet::Bucket::Hosts);
      if (!hosts.ok()) return hosts.error();
      for (const fleet::Entry& host : *hosts) {
        if (host.key == name && joined_by(host.value)) {
          return Error{ErrorCode::Conflict,
                       "host '" + name + "' comes by itself: `llorch-pool join` there"};
        }
      }
      return store.put(fleet::Bucket::Hosts, name, R"({"wish":"up"})", std::nullopt);
    };
    const Result<fleet::Revision> kept = co_await parts.threads.run(std::move(keep));
    if (!kept.ok()) co_return kept.error();
  }
  parts.core.post(fleet::HostAsked{name, is_local ? fleet::HostKind::Local : fleet::HostKind::Ssh,
                                   fleet::HostWish::Up});
  Status told = co_await write_down(parts, std::move(caller), "host.up", name);
  if (!told.ok()) co_return told;
  co_return co_await send_host(parts, 202, std::move(name), responder);
}

http::Task<Status> lower_host(const RouteParts& parts, Caller caller, const http::Request& request,
                              http::Responder& responder) {
  std::string name = path_param(request, "host");
  std::function<Result<bool>()> forget = [&store = parts.store, name]() -> Result<bool> {
    const Status erased = store.erase(fleet::Bucket::Hosts, name, std::nullopt);
    if (!erased.ok()) return erased.error();
    return true;
  };
  const Result<bool> forgotten = co_await parts.threads.run(std::move(forget));
  if (!forgotten.ok()) co_return forgotten.error();
  take_down_joined(parts, name);
  parts.core.post(
      fleet::HostAsked{name, name == kLocalHost ? fleet::HostKind::Local : fleet::HostKind::Ssh,
                       fleet::HostWish::Down});
  Status told = co_await write_down(parts, std::move(caller), "host.down", name);
  if (!told.ok()) co_return told;
  co_return co_await send_host(parts, 202, std::move(name), responder);
}

// A key hears nothing of models that it is not for.
http::Task<Status> show_models(const RouteParts& parts, Caller caller, const http::Request&,
                               http::Responder& responder) {
  return answer_from_owner<contract::FleetModelList>(
      parts, responder, [key = caller.key](const fleet::Fleet& fleet, fleet::TimePoint) {
        contract::FleetModelList list = list_models(fleet);
        std::erase_if(list.models, [&](const contract::FleetModel& model) {
          return !may_use_model(fleet, key, model.name);
        });
        return Result<contract::FleetModelList>(std::move(list));
      });
}

http::Task<Status> show_workers(const RouteParts& parts, Caller, const http::Request&,
                                http::Responder& responder) {
  return answer_from_owner<contract::FleetWorkerList>(
      parts, responder, [](const fleet::Fleet& fleet, fleet::TimePoint now) {
        return Result<contract::FleetWorkerList>(list_workers(fleet, now));
      });
}

// --- the house as a whole ---

http::Task<Status> show_status(const RouteParts& parts, Caller, const http::Request&,
                               http::Responder& responder) {
  return answer_from_owner<contract::FleetStatus>(
      parts, responder,
      [details = details_of(parts), uptime = uptime_seconds(parts), &pools = parts.pools,
       keys = static_cast<std::int64_t>(parts.keys.list().size()),
       audit_head = parts.audit != nullptr ? parts.audit->head().hash : std::string()](
          const fleet::Fleet& fleet, fleet::TimePoint now) {
        contract::FleetStatus status = make_status(fleet, details, now);
        status.loads = pools.loads();
        status.version = base::version();
        status.uptime_seconds = uptime;
        status.keys = keys;
        status.audit_head = audit_head;
        return Result<contract::FleetStatus>(std::move(status));
      });
}

// Never waits for the owner: a probe must not hang with it.
http::Task<Status> show_health(const RouteParts& parts, Caller, const http::Request& request,
                               http::Responder& responder) {
  const bool is_draining = parts.is_draining();
  const bool is_ready = parts.core.is_ready();
  contract::FleetHealth health;
  health.version = base::version();
  health.uptime_seconds = uptime_seconds(parts);
  if (is_ready && !is_draining) {
    http::Response response = api::json_response(200, contract::write_fields(health));
    co_return co_await responder.send(std::move(response));
  }
  using State = contract::FleetHealthState;
  health.status = is_draining ? State::Draining : State::Starting;
  const Error error{ErrorCode::Unavailable, is_draining ? "the orchestrator is being stopped"
                                                        : "the orchestrator is starting"};
  health.error = contract::ErrorDetail{contract::error_event(error), request.correlation_id, {}};
  http::Response response = api::json_response(503, contract::write_fields(health));
  response.headers.set("Retry-After", "1");
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> show_metrics(const RouteParts& parts, Caller, const http::Request&,
                                http::Responder& responder) {
  std::function<Result<std::string>(const fleet::Fleet&, fleet::TimePoint)> write =
      [details = details_of(parts)](const fleet::Fleet& fleet, fleet::TimePoint now) {
        return Result<std::string>(fleet_metrics(fleet, make_status(fleet, details, now)));
      };
  Result<std::string> text = co_await parts.core.ask_for<std::string>(std::move(write));
  if (!text.ok()) co_return text.error();
  const RelayCounters relays = parts.relays.counters();
  const AnswerBook::Size answers = parts.answers.size();
  api::append_value(*text, "llorch_relays", "gauge", "Attempts under way.", relays.live);
  api::append_value(*text, "llorch_relay_odd_events_total", "counter",
                    "Events of workers that had to be parsed as a whole.", relays.odd_events);
  api::append_value(*text, "llorch_answers", "gauge", "Answers in memory.", answers.answers);
  api::append_value(*text, "llorch_answer_bytes", "gauge", "Memory of answers.", answers.bytes);
  api::append_value(*text, "llorch_uptime_seconds", "gauge", "Since the process started.",
                    uptime_seconds(parts));
  api::append_head(*text, "llorch_build_info", "gauge", "What runs here.");
  fmt::format_to(std::back_inserter(*text), "llorch_build_info{{version=\"{}\"}} 1\n",
                 base::version());
  http::Response response(200, std::string(api::kMetricsType), text.take());
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> shut_down(const RouteParts& parts, Caller caller, const http::Request& request,
                             http::Responder& responder) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) co_return body.error();
  if (!body->empty())
    co_return Error{ErrorCode::InvalidArgument, "POST /v2/shutdown takes no fields"};
  Status told = co_await write_down(parts, std::move(caller), "daemon.shutdown", "orchestratord");
  if (!told.ok()) co_return told;
  parts.request_shutdown();
  http::Response response =
      api::json_response(202, contract::write_fields(contract::ShutdownAnswer{}));
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> back_up(const RouteParts& parts, Caller caller, const http::Request& request,
                           http::Responder& responder) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) co_return body.error();
  std::vector<json::FieldError> errors;
  const auto wanted = contract::read_described<contract::BackupRequest>(*body, errors);
  const std::filesystem::path file(wanted.file);
  const bool is_path = file.is_absolute() && wanted.file.find('\0') == std::string::npos;
  if (errors.empty() && !is_path)
    errors.push_back({"file", "absolute path", "must be an absolute path of this machine", {}});
  if (!errors.empty()) {
    http::Response failures = failures_response(request, std::move(errors));
    co_return co_await responder.send(std::move(failures));
  }
  std::function<Result<std::uintmax_t>()> copy = [&store = parts.store,
                                                  file]() -> Result<std::uintmax_t> {
    if (Status done = store.backup(file); !done.ok()) return done.error();
    std::error_code ignored;
    return std::filesystem::file_size(file, ignored);
  };
  const Result<std::uintmax_t> bytes = co_await parts.threads.run(std::move(copy));
  if (!bytes.ok()) co_return bytes.error();
  Status told = co_await write_down(parts, std::move(caller), "store.backup", wanted.file);
  if (!told.ok()) co_return told;
  http::Response response =
      api::json_response(200, contract::write_fields(contract::BackupAnswer{
                                  wanted.file, static_cast<std::int64_t>(*bytes)}));
  co_return co_await responder.send(std::move(response));
}

// --- keys ---

http::Task<Status> list_keys(const RouteParts& parts, Caller, const http::Request&,
                             http::Responder& responder) {
  contract::KeyList list;
  for (const StoredKey& key : parts.keys.list()) list.keys.push_back(view_key(key));
  return answer_from_owner<contract::KeyList>(
      parts, responder, [list = std::move(list)](const fleet::Fleet& fleet, fleet::TimePoint) {
        contract::KeyList shown = list;
        for (contract::KeyView& key : shown.keys) add_usage(fleet, key);
        return Result<contract::KeyList>(std::move(shown));
      });
}

http::Task<Status> add_key(const RouteParts& parts, Caller caller, const http::Request& request,
                           http::Responder& responder) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) co_return body.error();
  std::vector<json::FieldError> errors;
  const auto wanted = contract::read_described<contract::KeyRequest>(*body, errors);
  check_key_texts(wanted, errors);
  if (!errors.empty()) {
    http::Response failures = failures_response(request, std::move(errors));
    co_return co_await responder.send(std::move(failures));
  }
  fleet::KeyFacts facts;
  facts.name = wanted.name;
  facts.scope = wanted.scope == "admin"  ? fleet::Scope::Admin
                : wanted.scope == "join" ? fleet::Scope::Join
                                         : fleet::Scope::Infer;
  facts.models = wanted.models;
  facts.tokens_per_day = wanted.tokens_per_day;
  facts.requests_per_minute = static_cast<std::int32_t>(wanted.requests_per_minute);
  std::function<Result<KeyRing::NewKey>()> add = [&keys = parts.keys, facts] {
    return keys.add(facts, wall_now_ms());
  };
  const Result<KeyRing::NewKey> made = co_await parts.threads.run(std::move(add));
  if (!made.ok()) co_return made.error();
  contract::KeyView view = view_key(made->stored);
  Status told = co_await write_down(parts, std::move(caller), "key.add", view.id + " " + view.name,
                                    "scope " + view.scope);
  if (!told.ok()) co_return told;
  view.key = made->key;
  http::Response response = described_response(201, view);
  response.headers.set("Cache-Control", "no-store");
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> revoke_key(const RouteParts& parts, Caller caller, const http::Request& request,
                              http::Responder& responder) {
  std::function<Result<StoredKey>()> revoke = [&keys = parts.keys, id = path_param(request, "id")] {
    return keys.revoke(id);
  };
  const Result<StoredKey> revoked = co_await parts.threads.run(std::move(revoke));
  if (!revoked.ok()) co_return revoked.error();
  if (parts.joined != nullptr) parts.joined->close_of_key(revoked->id);
  Status told = co_await write_down(parts, std::move(caller), "key.revoke",
                                    fleet::text(revoked->id) + " " + revoked->facts.name);
  if (!told.ok()) co_return told;
  http::Response response = described_response(200, view_key(*revoked));
  co_return co_await responder.send(std::move(response));
}

}  // namespace llorch::orchestrator
