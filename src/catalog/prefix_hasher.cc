#include "catalog/prefix_hasher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/digest.h"

namespace llorch::catalog {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{256} << 10;

}  // namespace

PrefixHasher::PrefixHasher(std::shared_ptr<base::PositionedFile> file, std::int64_t size,
                           Wanted wanted)
    : file_(std::move(file)),
      size_(size),
      wanted_(wanted),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

PrefixHasher::~PrefixHasher() = default;

void PrefixHasher::advance(std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  final_ = std::max(final_, bytes);
  changed_.notify_all();
}

std::int64_t PrefixHasher::hashed() const {
  const std::scoped_lock lock(mutex_);
  return hashed_;
}

std::optional<Result<WholeHashes>> PrefixHasher::wait(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return result_.has_value(); });
  return result_;
}

void PrefixHasher::finish(std::optional<Result<WholeHashes>> result) {
  const std::scoped_lock lock(mutex_);
  result_ = std::move(result);
  changed_.notify_all();
}

void PrefixHasher::work(const std::stop_token& stop) {
  base::Digest sha256;
  base::Digest sha512(base::DigestKind::Sha512);
  base::Digest sha1(base::DigestKind::Sha1);
  sha1.add(fmt::format("blob {}", size_));
  sha1.add(std::string_view("\0", 1));
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(kPieceBytes, size_)));
  for (std::int64_t at = 0; at < size_;) {
    std::int64_t until = 0;
    {
      std::unique_lock lock(mutex_);
      hashed_ = at;
      if (!changed_.wait(lock, stop, [&] { return final_ > at; })) return;
      until = std::min(final_, size_);
    }
    while (at < until && !stop.stop_requested()) {
      const auto count = static_cast<std::size_t>(std::min(kPieceBytes, until - at));
      const Result<std::size_t> got = file_->read_at(at, std::span(buffer).first(count));
      if (!got.ok()) return finish(got.error());
      if (*got != count) {
        return finish(
            Error{ErrorCode::Corrupt,
                  fmt::format("{} ends at {} bytes where {} were written", file_->path().string(),
                              at + static_cast<std::int64_t>(*got), until)});
      }
      const std::span<const std::byte> bytes = std::span(buffer).first(count);
      sha256.add(bytes);
      if (wanted_.sha512) sha512.add(bytes);
      if (wanted_.git_sha1) sha1.add(bytes);
      at += static_cast<std::int64_t>(count);
    }
    if (stop.stop_requested()) return;
  }
  WholeHashes hashes;
  hashes.sha256 = sha256.finish_hex();
  if (wanted_.sha512) hashes.sha512_base64 = sha512.finish_base64();
  if (wanted_.git_sha1) hashes.git_sha1 = sha1.finish_hex();
  finish(std::move(hashes));
}

}  // namespace llorch::catalog
