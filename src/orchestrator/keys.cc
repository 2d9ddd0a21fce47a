#include "orchestrator/keys.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "contract/fields.h"

namespace llorch::orchestrator {

// As it lies in the store.
template <class V, contract::Described<StoredKey> T>
void describe(V& v, T& key) {
  static constexpr std::array<std::string_view, 3> kScopes = {"infer", "admin", "join"};
  v("name", key.facts.name);
  v("scope", key.facts.scope, {.names = kScopes});
  v("models", key.facts.models);
  v("tokens_per_day", key.facts.tokens_per_day);
  v("requests_per_minute", key.facts.requests_per_minute);
  v("revoked", key.facts.revoked);
  v("sha256", key.secret_hash);
  v("created_ms", key.created_ms);
}

namespace {

constexpr std::string_view kPrefix = "llk_";
constexpr std::string_view kBearer = "Bearer ";
constexpr std::size_t kIdDigits = 16;
constexpr std::size_t kSecretBytes = 32;

template <std::size_t N>
std::array<unsigned char, N> random_bytes() {
  std::array<unsigned char, N> bytes{};
  const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
  CHECK(got == static_cast<ssize_t>(N), "the kernel gives so few random bytes at once");
  return bytes;
}

std::string hex_of(std::span<const unsigned char> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : bytes) {
    hex += kDigits[byte >> 4U];
    hex += kDigits[byte & 15U];
  }
  return hex;
}

// "llk_<id>_<secret>" → its id. Nothing: it is no key of ours.
std::optional<fleet::KeyId> id_in_key(std::string_view key) {
  if (!key.starts_with(kPrefix)) return std::nullopt;
  key.remove_prefix(kPrefix.size());
  if (key.size() <= kIdDigits || key[kIdDigits] != '_') return std::nullopt;
  return fleet::key_id_from_text(key.substr(0, kIdDigits));
}

std::optional<std::string_view> bearer_of(const http::Request& request) {
  const auto header = request.headers.find("Authorization");
  if (!header) return std::nullopt;
  if (!http::equals_ignoring_case(header->substr(0, kBearer.size()), kBearer)) return *header;
  return header->substr(kBearer.size());
}

Result<StoredKey> read_key(const fleet::Entry& entry) {
  const std::optional<fleet::KeyId> id = fleet::key_id_from_text(entry.key);
  Result<json::Value> value = json::parse(entry.value);
  if (!id || !value.ok() || !value->is_object())
    return Error{ErrorCode::Corrupt, "the stored key '" + entry.key + "' cannot be read"};
  json::FieldReader reader(value->get_object());
  contract::FieldTaker taker(reader);
  StoredKey key;
  describe(taker, key);
  key.id = *id;
  reader.ignore_others();
  if (!reader.finish().empty())
    return Error{ErrorCode::Corrupt, "the stored key '" + entry.key + "' cannot be read"};
  return key;
}

}  // namespace

std::string short_name(const http::Request& request) {
  const std::optional<std::string_view> token = bearer_of(request);
  return token ? "token:" + base::sha256_hex(*token).substr(0, 6) : "none";
}

KeyRing::KeyRing(job_store::Store& store, std::function<void(fleet::Event)> post)
    : store_(store), post_(std::move(post)) {}

Result<std::unique_ptr<KeyRing>> KeyRing::open(job_store::Store& store,
                                               std::function<void(fleet::Event)> post) {
  const Result<std::vector<fleet::Entry>> entries = store.list(fleet::Bucket::Keys);
  if (!entries.ok()) return entries.error();
  std::unique_ptr<KeyRing> ring(new KeyRing(store, std::move(post)));
  const base::MutexLock lock(ring->mutex_);
  for (const fleet::Entry& entry : *entries) {
    Result<StoredKey> key = read_key(entry);
    if (!key.ok()) return key.error();
    const std::uint64_t id = key->id.value;
    ring->keys_.emplace(id, key.take());
  }
  return ring;
}

std::optional<StoredKey> KeyRing::find(std::string_view token) const {
  const std::optional<fleet::KeyId> id = id_in_key(token);
  // The hash is compared also where there is no such id: both take as long.
  const std::string given = base::sha256_hex(token);
  const base::MutexLock lock(mutex_);
  const auto found = id ? keys_.find(id->value) : keys_.end();
  const std::string expected =
      found == keys_.end() ? std::string(64, '-') : found->second.secret_hash;
  if (!base::is_same_secret(given, expected)) return std::nullopt;
  return found->second;
}

bool KeyRing::is_good(std::string_view token) const {
  const std::optional<StoredKey> key = find(token);
  return key && !key->facts.revoked;
}

Result<Caller> KeyRing::authorize(const http::Request& request, fleet::Scope needed) const {
  const std::optional<std::string_view> token = bearer_of(request);
  if (!token) {
    if (request.from_loopback) return Caller{};
    return Error{ErrorCode::Unauthorized,
                 "this needs a key: send 'Authorization: Bearer llk_…'; `llorch keys add NAME` "
                 "makes one"};
  }
  const std::optional<StoredKey> key = find(*token);
  if (!key) {
    // Programs that insist on sending some key are welcome on loopback.
    if (request.from_loopback && !token->starts_with(kPrefix)) return Caller{};
    return Error{ErrorCode::Unauthorized,
                 "this key is unknown here; `llorch keys list` shows those that are"};
  }
  if (const Status allowed = fleet::check_scope(key->facts, needed); !allowed.ok())
    return allowed.error();
  return Caller{key->id, key->facts.name, key->facts.scope};
}

Status KeyRing::keep(const StoredKey& key) const {
  const Result<fleet::Revision> kept =
      store_.put(fleet::Bucket::Keys, fleet::text(key.id),
                 json::serialize(contract::write_fields(key)), std::nullopt);
  if (!kept.ok()) return kept.error();
  return ok_status();
}

// Of two who want a name at once, one gets it.
Status KeyRing::reserve_name(const std::string& name) {
  const base::MutexLock lock(mutex_);
  const bool is_taken = std::any_of(keys_.begin(), keys_.end(), [&name](const auto& key) {
    return key.second.facts.name == name && !key.second.facts.revoked;
  });
  if (!is_taken && names_being_added_.insert(name).second) return ok_status();
  return Error{ErrorCode::Conflict,
               "there is a key '" + name + "' already; revoke it or choose another name"};
}

Result<KeyRing::NewKey> KeyRing::add(const fleet::KeyFacts& facts, fleet::UnixMs now_ms) {
  if (Status reserved = reserve_name(facts.name); !reserved.ok()) return reserved.error();
  NewKey made;
  std::uint64_t id = 0;
  for (const unsigned char byte : random_bytes<8>()) id = id << 8U | byte;
  made.stored.id = {id | 1U};  // never 0
  made.stored.facts = facts;
  made.stored.created_ms = now_ms;
  made.key = std::string(kPrefix) + fleet::text(made.stored.id) + "_" +
             hex_of(random_bytes<kSecretBytes>());
  made.stored.secret_hash = base::sha256_hex(made.key);
  const Status kept = keep(made.stored);
  {
    const base::MutexLock lock(mutex_);
    if (kept.ok()) keys_[made.stored.id.value] = made.stored;
    names_being_added_.erase(facts.name);
  }
  if (!kept.ok()) return kept.error();
  post_(fleet::KeyChanged{made.stored.id, made.stored.facts});
  return made;
}

Result<StoredKey> KeyRing::revoke(std::string_view id_or_name) {
  std::optional<StoredKey> newest;
  for (StoredKey& key : list()) {
    if (fleet::text(key.id) != id_or_name && key.facts.name != id_or_name) continue;
    if (!key.facts.revoked) {
      key.facts.revoked = true;
      if (Status kept = keep(key); !kept.ok()) return kept.error();
      {
        const base::MutexLock lock(mutex_);
        keys_[key.id.value] = key;
      }
      post_(fleet::KeyChanged{key.id, key.facts});
    }
    newest = std::move(key);
  }
  if (newest) return std::move(*newest);
  return Error{ErrorCode::NotFound,
               "there is no key '" + std::string(id_or_name) + "'; `llorch keys list` shows them"};
}

bool KeyRing::is_live(fleet::KeyId id) const {
  const base::MutexLock lock(mutex_);
  const auto found = keys_.find(id.value);
  return id.value == 0 || (found != keys_.end() && !found->second.facts.revoked);
}

std::vector<StoredKey> KeyRing::list() const {
  std::vector<StoredKey> keys;
  {
    const base::MutexLock lock(mutex_);
    for (const auto& [id, key] : keys_) keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end(), [](const StoredKey& a, const StoredKey& b) {
    return std::pair(a.facts.name, a.id.value) < std::pair(b.facts.name, b.id.value);
  });
  return keys;
}

bool KeyRing::is_empty() const {
  const std::vector<StoredKey> keys = list();
  return std::all_of(keys.begin(), keys.end(),
                     [](const StoredKey& key) { return key.facts.revoked; });
}

}  // namespace llorch::orchestrator
