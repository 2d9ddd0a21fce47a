// Pools that come by themselves: joining, their connections, leaving.
#include <memory>
#include <optional>
#include <utility>

#include "contract/fleet_api.h"
#include "contract/join_api.h"
#include "orchestrator/endpoint_table.h"
#include "orchestrator/joined_hosts.h"

namespace llorch::orchestrator {
namespace {

constexpr std::size_t kHostsOfKeyMax = 16;

// Takes the name for this key, in the store. Conflict: it is somebody else's.
Result<bool> take_name(job_store::Store& store, const KeyRing& keys, const std::string& name,
                       fleet::KeyId key) {
  const Result<std::vector<fleet::Entry>> hosts = store.list(fleet::Bucket::Hosts);
  if (!hosts.ok()) return hosts.error();
  std::size_t others = 0;  // of the same key
  for (const fleet::Entry& host : *hosts) {
    const std::optional<fleet::KeyId> owner = joined_by(host.value);
    if (host.key != name) {
      if (owner == key) ++others;
      continue;
    }
    if (!owner) {
      return Error{ErrorCode::Conflict,
                   "host '" + name +
                       "' is reached with ssh; `llorch down` it first, or join "
                       "under another --name"};
    }
    if (*owner != key && keys.is_live(*owner)) {
      return Error{ErrorCode::Conflict, "host '" + name +
                                            "' has joined with another key; choose another --name, "
                                            "or let an administrator take it down"};
    }
  }
  if (others >= kHostsOfKeyMax) {
    return Error{ErrorCode::Conflict,
                 "this key has let in as many hosts as one key may; make another"};
  }
  const Result<fleet::Revision> kept =
      store.put(fleet::Bucket::Hosts, name, joined_entry(key), std::nullopt);
  if (!kept.ok()) return kept.error();
  return true;
}

Status check_name(const std::string& name) {
  // `--host all` means every host.
  if (contract::is_host_name(name) && name != kLocalHost && name != "all") return ok_status();
  return Error{ErrorCode::InvalidArgument,
               "name: expected 1..64 of [A-Za-z0-9._-], a letter or digit first, and neither "
               "'local' nor 'all'"};
}

}  // namespace

http::Task<Status> join_pool(const RouteParts& parts, Caller caller, const http::Request& request,
                             http::Responder& responder) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) co_return body.error();
  std::vector<json::FieldError> errors;
  const std::string name = contract::read_described<contract::JoinRequest>(*body, errors).name;
  if (!errors.empty()) {
    http::Response failures = failures_response(request, std::move(errors));
    co_return co_await responder.send(std::move(failures));
  }
  if (Status good = check_name(name); !good.ok()) co_return good;
  if (parts.joined == nullptr)
    co_return Error{ErrorCode::Unsupported, "this orchestrator takes no pools"};
  const fleet::KeyId key = caller.key;
  std::function<Result<bool>()> take = [&store = parts.store, &keys = parts.keys, name, key] {
    return take_name(store, keys, name, key);
  };
  const Result<bool> taken = co_await parts.threads.run(std::move(take));
  if (!taken.ok()) co_return taken.error();
  const PoolAddress address = parts.joined->open(name, key);
  parts.core.run_on_owner([&pools = parts.pools, name, address] { pools.connect(name, address); });
  parts.core.post(fleet::HostAsked{name, fleet::HostKind::Joined, fleet::HostWish::Up});
  Status told = co_await write_down(parts, std::move(caller), "pool.join", name);
  if (!told.ok()) co_return told;
  contract::JoinAnswer answer;
  answer.host = name;
  http::Response response = described_response(200, answer);
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> connect_pool(const RouteParts& parts, Caller caller,
                                const http::Request& request, http::Responder& responder) {
  const std::optional<std::string_view> wanted = request.headers.find("Upgrade");
  if (!wanted || *wanted != contract::kPoolProtocol) {
    co_return Error{ErrorCode::InvalidArgument,
                    std::string("expected the header 'Upgrade: ") + contract::kPoolProtocol + "'"};
  }
  if (parts.joined == nullptr)
    co_return Error{ErrorCode::Unsupported, "this orchestrator takes no pools"};
  co_return co_await parts.joined->serve(path_param(request, "host"), caller.key, responder);
}

http::Task<Status> leave_pool(const RouteParts& parts, Caller caller, const http::Request& request,
                              http::Responder& responder) {
  const std::string name = path_param(request, "host");
  const bool is_admin = caller.scope == fleet::Scope::Admin;
  std::function<Result<bool>()> forget = [&store = parts.store, name, key = caller.key,
                                          is_admin]() -> Result<bool> {
    const Result<std::vector<fleet::Entry>> hosts = store.list(fleet::Bucket::Hosts);
    if (!hosts.ok()) return hosts.error();
    for (const fleet::Entry& host : *hosts) {
      const std::optional<fleet::KeyId> owner = joined_by(host.value);
      if (host.key != name || !owner || (*owner != key && !is_admin)) continue;
      if (Status erased = store.erase(fleet::Bucket::Hosts, name, std::nullopt); !erased.ok())
        return erased.error();
      return true;
    }
    return Error{ErrorCode::NotFound, "host '" + name + "' has not joined with this key"};
  };
  const Result<bool> forgotten = co_await parts.threads.run(std::move(forget));
  if (!forgotten.ok()) co_return forgotten.error();
  take_down_joined(parts, name);
  parts.core.post(fleet::HostAsked{name, fleet::HostKind::Joined, fleet::HostWish::Down});
  Status told = co_await write_down(parts, std::move(caller), "pool.leave", name);
  if (!told.ok()) co_return told;
  contract::JoinAnswer answer;
  answer.host = name;
  answer.reserve = 0;
  http::Response response = described_response(200, answer);
  co_return co_await responder.send(std::move(response));
}

void take_down_joined(const RouteParts& parts, const std::string& name) {
  if (parts.joined == nullptr || !parts.joined->close(name)) return;
  parts.core.run_on_owner([&pools = parts.pools, name] { pools.disconnect(name); });
}

}  // namespace llorch::orchestrator
