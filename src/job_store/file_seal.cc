#include "job_store/file_seal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "base/digest.h"

namespace llorch::job_store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSealBegin = "\nllorch-backup sha256 ";
constexpr std::size_t kSealBytes = kSealBegin.size() + 64 + 1;  // the hex digits, the line's end
// No database has pages below this, so a length that is no multiple of it has something behind the
// last page, whatever damage has made of that.
constexpr std::uintmax_t kPageBytesMin = 512;
static_assert(kSealBytes < kPageBytesMin);
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

Error unreadable(const fs::path& file) {
  return {ErrorCode::Unavailable, fmt::format("{} cannot be read to its end", file.string())};
}

// The line that belongs behind the first `num_bytes` of the file.
Result<std::string> seal_of(const fs::path& file, std::uintmax_t num_bytes) {
  std::ifstream stream(file, std::ios::binary);
  base::Digest digest;
  std::string piece(kPieceBytes, '\0');
  for (std::uintmax_t left = num_bytes; left > 0;) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uintmax_t>(left, kPieceBytes));
    if (!stream.read(piece.data(), static_cast<std::streamsize>(wanted))) return unreadable(file);
    digest.add(std::string_view(piece).substr(0, wanted));
    left -= wanted;
  }
  return fmt::format("{}{}\n", kSealBegin, digest.finish_hex());
}

Result<std::uintmax_t> size_of(const fs::path& file) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  if (error)
    return Error{ErrorCode::Unavailable,
                 fmt::format("{} cannot be read: {}", file.string(), error.message())};
  return size;
}

}  // namespace

Status seal_file(const fs::path& file) {
  const Result<std::uintmax_t> size = size_of(file);
  if (!size.ok()) return size.error();
  const Result<std::string> seal = seal_of(file, *size);
  if (!seal.ok()) return seal.error();
  std::ofstream stream(file, std::ios::binary | std::ios::app);
  stream << *seal;
  stream.close();
  if (stream) return ok_status();
  return Error{ErrorCode::Unavailable,
               fmt::format("{} cannot be written to its end; is the disk full?", file.string())};
}

Result<bool> check_seal(const fs::path& file) {
  const Result<std::uintmax_t> size = size_of(file);
  if (!size.ok()) return size.error();
  if (*size % kPageBytesMin == 0) return false;
  if (*size > kSealBytes) {
    std::string found(kSealBytes, '\0');
    std::ifstream stream(file, std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(*size - kSealBytes));
    if (!stream.read(found.data(), static_cast<std::streamsize>(kSealBytes)))
      return unreadable(file);
    const Result<std::string> seal = seal_of(file, *size - kSealBytes);
    if (!seal.ok()) return seal.error();
    if (found == *seal) return true;
  }
  return Error{
      ErrorCode::Corrupt,
      fmt::format("{} is damaged, or no backup: its contents are not those whose SHA-256 stands "
                  "behind them. Nothing was changed; take another backup",
                  file.string())};
}

}  // namespace llorch::job_store
