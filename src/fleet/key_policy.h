// What a key may do: its scope, its models, its tokens of the day, its requests in a minute.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fleet/handles.h"
#include "fleet/records.h"

namespace llorch::fleet {

// Join: a pool may come with it, and nothing else; Admin: everything.
enum class Scope : std::uint8_t { Infer, Admin, Join };
std::string_view name(Scope scope);

// As it was made. What proves that somebody has it (the hash of the secret) is not known here.
struct KeyFacts {
  std::string name;
  Scope scope = Scope::Infer;
  std::vector<std::string> models;       // globs; empty: all
  std::int64_t tokens_per_day = 0;       // 0: no bound
  std::int32_t requests_per_minute = 0;  // 0: no bound
  bool revoked = false;
};

// What it has used. Days are those of UTC.
struct KeyUsage {
  std::int64_t day = 0;              // since 1970
  std::int64_t tokens_today = 0;     // of answers that ended, and of prompts
  std::int64_t tokens_reserved = 0;  // by jobs that have not ended
  std::int64_t tokens_ever = 0;
  std::int64_t jobs_ever = 0;
  double requests_left = 0;  // in the bucket
  TimePoint filled_at{};
};

struct KeyRefusal {
  Error error;
  double retry_after_ms = 0;  // 0: never
};

// `*` stands for any text, also an empty one; `?` for one byte. Everything else is itself.
bool matches_glob(std::string_view glob, std::string_view text);

Status check_scope(const KeyFacts& key, Scope needed);

// Whether one more job with at most this many tokens may be accepted. Takes it out of the bucket
// and reserves the tokens when it may; changes nothing otherwise. None: it may.
std::optional<KeyRefusal> admit(const KeyFacts& key, KeyUsage& usage, std::string_view model,
                                std::int64_t tokens, UnixMs wall_ms, TimePoint now);

// A job has ended: what was reserved is given back, what was used is counted.
void settle(KeyUsage& usage, std::int64_t reserved, std::int64_t used, UnixMs wall_ms);

// As it is kept in the store: "day tokens_today tokens_ever jobs_ever".
std::string usage_text(const KeyUsage& usage);
Result<KeyUsage> usage_from_text(std::string_view text);

}  // namespace llorch::fleet
