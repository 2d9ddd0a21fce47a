// KeyRing: who may do what. Keys are llk_<id>_<secret>; what is stored is the SHA-256 of the whole,
// with the key's scope and bounds. The budgets themselves are decided by fleet/key_policy.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "fleet/events.h"
#include "fleet/key_policy.h"
#include "http/message.h"
#include "job_store/store.h"

namespace llorch::orchestrator {

// Who sent a request. Without a key (loopback) everything is allowed and the id is 0.
struct Caller {
  fleet::KeyId key;
  std::string name;
  fleet::Scope scope = fleet::Scope::Admin;
};

struct StoredKey {
  fleet::KeyId id;
  fleet::KeyFacts facts;
  std::string secret_hash;  // 64 hex digits
  fleet::UnixMs created_ms = 0;
};

// The key that a request brought, as a log may name it: "token:<6 hex of its sha256>", or "none".
std::string short_name(const http::Request& request);

// Any thread.
class KeyRing {
 public:
  // Reads what is stored. `post` hears KeyChanged at every change.
  static Result<std::unique_ptr<KeyRing>> open(job_store::Store& store,
                                               std::function<void(fleet::Event)> post);

  // Whether the server may believe this bearer token. Revoked ones are not good.
  bool is_good(std::string_view token) const;

  // Who asks: Unauthorized where the key is unknown or revoked, or where there is none and the
  // request does not come from loopback; Forbidden where its scope does not suffice.
  Result<Caller> authorize(const http::Request& request, fleet::Scope needed) const;

  // The whole key is in the answer and nowhere else. These wait for the disk.
  struct NewKey {
    StoredKey stored;
    std::string key;
  };
  Result<NewKey> add(const fleet::KeyFacts& facts, fleet::UnixMs now_ms);
  // One key by its id, or all that have the name.
  Result<StoredKey> revoke(std::string_view id_or_name);

  bool is_live(fleet::KeyId id) const;  // known and not revoked; nobody's (0) is live always
  std::vector<StoredKey> list() const;  // by name
  bool is_empty() const;                // no key that is good

 private:
  KeyRing(job_store::Store& store, std::function<void(fleet::Event)> post);
  std::optional<StoredKey> find(std::string_view token) const;
  Status keep(const StoredKey& key) const;
  Status reserve_name(const std::string& name);

  job_store::Store& store_;
  const std::function<void(fleet::Event)> post_;
  mutable base::Mutex mutex_;
  std::map<std::uint64_t, StoredKey> keys_ LLORCH_GUARDED_BY(mutex_);
  std::set<std::string> names_being_added_ LLORCH_GUARDED_BY(mutex_);
};

}  // namespace llorch::orchestrator
