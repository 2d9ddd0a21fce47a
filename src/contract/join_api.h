// Pools that join an orchestrator by themselves: what they say to it, and what their own API says
// of it.
#pragma once

#include <cstdint>
#include <string>

#include "contract/fields.h"

namespace llorch::contract {

inline constexpr std::size_t kHostNameBytesMax = 64;

// What a connection that a pool opened speaks before it is used.
inline constexpr const char* kPoolProtocol = "llorch-pool";

// POST /v2/pools/join of the orchestrator.
struct JoinRequest {
  std::string name;  // of the host, in the fleet: [A-Za-z0-9][A-Za-z0-9._-]*

  friend bool operator==(const JoinRequest&, const JoinRequest&) = default;
};
template <class V, Described<JoinRequest> T>
void describe(V& v, T& value) {
  v("name", value.name, {.must = true, .bytes = {1, kHostNameBytesMax}});
}

struct JoinAnswer {
  std::string host;
  std::int64_t reserve = 4;  // connections that the pool keeps open and idle

  friend bool operator==(const JoinAnswer&, const JoinAnswer&) = default;
};
template <class V, Described<JoinAnswer> T>
void describe(V& v, T& value) {
  v("host", value.host);
  v("reserve", value.reserve);
}

// POST /v2/join of a pool: that it is to join.
struct PoolJoinRequest {
  std::string url;    // of the orchestrator
  std::string token;  // a key with scope join
  std::string name;
  std::string ca_pem;  // the authority of its certificate; empty: the system's

  friend bool operator==(const PoolJoinRequest&, const PoolJoinRequest&) = default;
};
template <class V, Described<PoolJoinRequest> T>
void describe(V& v, T& value) {
  v("url", value.url, {.must = true, .bytes = {1, 2048}});
  v("token", value.token, {.must = true, .bytes = {16, 1024}});
  v("name", value.name, {.must = true, .bytes = {1, kHostNameBytesMax}});
  v("ca_pem", value.ca_pem, {.bytes = {0, 65536}});
}

// GET /v2/join of a pool.
struct PoolJoinState {
  std::string state = "none";  // connecting, joined, refused
  std::string url;
  std::string name;
  std::string reason;  // why it is not joined

  friend bool operator==(const PoolJoinState&, const PoolJoinState&) = default;
};
template <class V, Described<PoolJoinState> T>
void describe(V& v, T& value) {
  v("state", value.state);
  v("url", value.url);
  v("name", value.name);
  v("reason", value.reason);
}

// Whether a pool may have this name in a fleet.
inline bool is_host_name(std::string_view name) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (name.empty() || name.size() > kHostNameBytesMax || !is_word(name.front())) return false;
  for (const char c : name) {
    if (!is_word(c) && c != '.' && c != '_' && c != '-') return false;
  }
  return true;
}

}  // namespace llorch::contract
