#include "pool/fence.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "base/utf8.h"
#include "contract/pool_state.h"

namespace llorch::pool {

std::optional<std::stop_source> Fence::raise(std::uint64_t boot, TimePoint now) {
  if (boot <= boot_) return std::nullopt;
  boot_ = boot;
  heard_ = now;
  return std::exchange(relays_, std::stop_source());
}

Error Fence::outdated(std::uint64_t boot) const {
  return {ErrorCode::Conflict,
          fmt::format("this orchestrator (boot {}) has been replaced by a later one (boot {}): it "
                      "must not use this pool any more",
                      boot, boot_)};
}

Result<std::stop_token> Fence::enter(std::uint64_t boot, TimePoint now) {
  std::optional<std::stop_source> ended;
  std::stop_token token;
  {
    const base::MutexLock lock(mutex_);
    if (boot < boot_) return outdated(boot);
    ended = raise(boot, now);
    if (now - heard_ > kPatience) {
      return Error{ErrorCode::Conflict,
                   fmt::format("this orchestrator (boot {}) has not asked for the state for {} s; "
                               "ask for /v2/state first",
                               boot, kPatience.count())};
    }
    token = relays_.get_token();
  }
  if (ended) ended->request_stop();
  return token;
}

Status Fence::hear(std::uint64_t boot, TimePoint now) {
  std::optional<std::stop_source> ended;
  {
    const base::MutexLock lock(mutex_);
    if (boot < boot_ && now - heard_ <= kPatience) return outdated(boot);
    if (boot < boot_) boot_ = 0;  // nobody's any more
    ended = raise(boot, now);
    heard_ = now;
  }
  if (ended) ended->request_stop();
  return ok_status();
}

void Fence::look(TimePoint now) {
  std::stop_source ended(std::nostopstate);
  {
    const base::MutexLock lock(mutex_);
    if (boot_ == 0 || now - heard_ <= kPatience) return;
    ended = std::exchange(relays_, std::stop_source());
  }
  ended.request_stop();
}

Result<std::optional<std::uint64_t>> boot_of(const http::Headers& headers) {
  const auto text = headers.find(contract::kBootHeader);
  if (!text) return std::optional<std::uint64_t>();
  std::uint64_t boot = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), boot);
  if (error != std::errc() || end != text->data() + text->size() || boot == 0 ||
      headers.count(contract::kBootHeader) != 1) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the header {} is one number from 1 on, not {}", contract::kBootHeader,
                             base::quoted(*text))};
  }
  return std::optional<std::uint64_t>(boot);
}

}  // namespace llorch::pool
