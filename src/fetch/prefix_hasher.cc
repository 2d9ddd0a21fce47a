#include "fetch/prefix_hasher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/job_border.h"
#include "base/thread.h"

namespace llorch::fetch {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{256} << 10;

}  // namespace

PrefixHasher::PrefixHasher(std::shared_ptr<base::PositionedFile> file, std::int64_t size,
                           Wanted wanted)
    : file_(std::move(file)),
      size_(size),
      wanted_(wanted),
      thread_(base::start_thread("prefix-hash", [this] {
        using Outcome = std::optional<Result<WholeHashes>>;
        Result<Outcome> outcome =
            base::run_job<Outcome>("while hashing", [this]() -> Result<Outcome> { return work(); });
        const base::MutexLock lock(mutex_);
        result_ = outcome.ok() ? outcome.take() : Outcome(outcome.error());
        changed_.notify_all();
      })) {}

PrefixHasher::~PrefixHasher() {
  const base::MutexLock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}  // the thread is joined behind this

void PrefixHasher::advance(std::int64_t bytes) {
  const base::MutexLock lock(mutex_);
  final_ = std::max(final_, bytes);
  changed_.notify_all();
}

std::int64_t PrefixHasher::hashed() const {
  const base::MutexLock lock(mutex_);
  return hashed_;
}

std::optional<Result<WholeHashes>> PrefixHasher::wait(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const base::MutexLock lock(mutex_);
  while (!result_ && changed_.wait_until(mutex_, deadline)) {
  }
  return result_;
}

std::optional<std::int64_t> PrefixHasher::wait_for_more(std::int64_t at) {
  const base::MutexLock lock(mutex_);
  hashed_ = at;
  while (final_ <= at && !stopping_) changed_.wait(mutex_);
  if (stopping_) return std::nullopt;
  return std::min(final_, size_);
}

std::optional<Result<WholeHashes>> PrefixHasher::work() {
  base::Digest sha256;
  base::Digest sha512(base::DigestKind::Sha512);
  base::Digest sha1(base::DigestKind::Sha1);
  sha1.add(fmt::format("blob {}", size_));
  sha1.add(std::string_view("\0", 1));
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(kPieceBytes, size_)));
  for (std::int64_t at = 0; at < size_;) {
    const std::optional<std::int64_t> until = wait_for_more(at);
    if (!until) return std::nullopt;
    // One piece at a time, so that nobody waits long for the end of this object.
    const auto count = static_cast<std::size_t>(std::min(kPieceBytes, *until - at));
    const Result<std::size_t> got = file_->read_at(at, std::span(buffer).first(count));
    if (!got.ok()) return Result<WholeHashes>(got.error());
    if (*got != count) {
      return Result<WholeHashes>(
          Error{ErrorCode::Corrupt,
                fmt::format("{} ends at {} bytes where {} were written", file_->path().string(),
                            at + static_cast<std::int64_t>(*got), *until)});
    }
    const std::span<const std::byte> bytes = std::span(buffer).first(count);
    sha256.add(bytes);
    if (wanted_.sha512) sha512.add(bytes);
    if (wanted_.git_sha1) sha1.add(bytes);
    at += static_cast<std::int64_t>(count);
  }
  WholeHashes hashes;
  hashes.sha256 = sha256.finish_hex();
  if (wanted_.sha512) hashes.sha512_base64 = sha512.finish_base64();
  if (wanted_.git_sha1) hashes.git_sha1 = sha1.finish_hex();
  return Result<WholeHashes>(std::move(hashes));
}

}  // namespace llorch::fetch
