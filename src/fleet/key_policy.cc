#include "fleet/key_policy.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"

namespace llorch::fleet {
namespace {

constexpr std::int64_t kDayMs = 86'400'000;
constexpr double kMinuteMs = 60'000;

void turn_day(KeyUsage& usage, UnixMs wall_ms) {
  const std::int64_t day = wall_ms / kDayMs;
  if (day == usage.day) return;
  usage.day = day;
  usage.tokens_today = 0;
}

void fill(const KeyFacts& key, KeyUsage& usage, TimePoint now) {
  const double most = key.requests_per_minute;
  const bool is_new = usage.filled_at == TimePoint{};
  const double came = is_new ? most : millis_between(usage.filled_at, now) * most / kMinuteMs;
  usage.requests_left = std::min(most, usage.requests_left + std::max(0.0, came));
  usage.filled_at = now;
}

}  // namespace

bool matches_glob(std::string_view glob, std::string_view text) {
  std::size_t g = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;  // the newest one
  std::size_t resume = 0;                     // where the text goes on if it takes one more byte
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = t;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t])) {
      ++g;
      ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

std::string_view name(Scope scope) {
  constexpr std::array<std::string_view, 3> kNames = {"infer", "admin", "join"};
  return kNames[static_cast<std::size_t>(scope)];
}

Status check_scope(const KeyFacts& key, Scope needed) {
  if (key.revoked) return Error{ErrorCode::Unauthorized, "this key was revoked"};
  if (key.scope == needed || key.scope == Scope::Admin) return ok_status();
  return Error{ErrorCode::Forbidden,
               "key '" + key.name + "' has scope " + std::string(name(key.scope)) +
                   "; this needs one made with --scope " + std::string(name(needed))};
}

std::optional<KeyRefusal> admit(const KeyFacts& key, KeyUsage& usage, std::string_view model,
                                std::int64_t tokens, UnixMs wall_ms, TimePoint now) {
  if (const Status scope = check_scope(key, Scope::Infer); !scope.ok())
    return KeyRefusal{scope.error(), 0};
  const auto fits = [model](const std::string& glob) { return matches_glob(glob, model); };
  if (!key.models.empty() && std::none_of(key.models.begin(), key.models.end(), fits)) {
    return KeyRefusal{{ErrorCode::Forbidden,
                       "key '" + key.name + "' is not for model '" + std::string(model) + "'"},
                      0};
  }
  turn_day(usage, wall_ms);
  const std::int64_t taken = usage.tokens_today + usage.tokens_reserved;
  if (key.tokens_per_day > 0 && tokens > key.tokens_per_day - taken) {
    const std::string has =
        "key '" + key.name + "' has " + std::to_string(key.tokens_per_day) + " tokens a day, ";
    const std::string needs = "this needs up to " + std::to_string(tokens);
    if (tokens > key.tokens_per_day) {
      return KeyRefusal{{ErrorCode::Forbidden, has + "and " + needs +
                                                   ", more than it ever has: ask for fewer with "
                                                   "max_tokens, or with a key that has more"},
                        0};
    }
    return KeyRefusal{
        {ErrorCode::QueueFull, has + std::to_string(taken) + " of them used or reserved; " + needs +
                                   ": ask for fewer with max_tokens"},
        static_cast<double>(kDayMs - wall_ms % kDayMs)};
  }
  if (key.requests_per_minute > 0) {
    fill(key, usage, now);
    if (usage.requests_left < 1) {
      return KeyRefusal{
          {ErrorCode::QueueFull, "key '" + key.name + "' may send " +
                                     std::to_string(key.requests_per_minute) +
                                     " requests a minute"},
          std::max(1.0, (1 - usage.requests_left) * kMinuteMs / key.requests_per_minute)};
    }
    usage.requests_left -= 1;
  }
  usage.tokens_reserved += tokens;
  return std::nullopt;
}

void settle(KeyUsage& usage, std::int64_t reserved, std::int64_t used, UnixMs wall_ms) {
  CHECK(usage.tokens_reserved >= reserved, "tokens are given back once");
  turn_day(usage, wall_ms);
  usage.tokens_reserved -= reserved;
  usage.tokens_today += used;
  usage.tokens_ever += used;
  ++usage.jobs_ever;
}

std::string usage_text(const KeyUsage& usage) {
  return std::to_string(usage.day) + " " + std::to_string(usage.tokens_today) + " " +
         std::to_string(usage.tokens_ever) + " " + std::to_string(usage.jobs_ever);
}

Result<KeyUsage> usage_from_text(std::string_view text) {
  KeyUsage usage;
  const std::string whole(text);
  for (std::int64_t* field :
       {&usage.day, &usage.tokens_today, &usage.tokens_ever, &usage.jobs_ever}) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), *field);
    if (word.empty() || error != std::errc() || stop != word.data() + word.size() || *field < 0) {
      return Error{ErrorCode::Corrupt,
                   "stored usage of a key: expected four numbers, found '" + whole + "'"};
    }
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return usage;
}

}  // namespace llorch::fleet
