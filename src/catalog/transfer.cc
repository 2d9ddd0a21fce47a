#include "catalog/transfer.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "catalog/http_fetch.h"
#include "catalog/transfer_job.h"

namespace llorch::catalog {
namespace {

constexpr std::int64_t kRangeInMemoryMax = std::int64_t{256} << 20;
constexpr std::chrono::milliseconds kRangeDeadline{600'000};

}  // namespace

Result<FileChunks> fetch_file(const RemoteFile& file, const std::filesystem::path& target,
                              const TransferOptions& options, const OnTransferProgress& progress,
                              std::stop_token stop) {
  Transfer transfer(file, target, options, progress, std::move(stop));
  return transfer.run();
}

Result<std::string> fetch_range(const RemoteFile& file, std::int64_t offset, std::int64_t bytes,
                                const TransferOptions& options, std::stop_token stop) {
  CHECK(offset >= 0 && bytes > 0 && bytes <= kRangeInMemoryMax, "a range that fits into memory");
  TextRequest request;
  request.request.url = file.url;
  request.request.headers = file.headers;
  request.request.headers_for_url = file.url;
  request.request.range = ByteRange{offset, bytes};
  request.max_bytes = static_cast<std::size_t>(bytes);
  request.deadline = kRangeDeadline;
  Result<TextAnswer> answer = fetch_text(request,
                                         {options.connect_timeout, options.stall_timeout,
                                          options.min_bytes_per_second, options.ca_file},
                                         options.retry, std::move(stop));
  if (!answer.ok()) {
    if (answer.error().code != ErrorCode::TooLarge) return answer.error();
    return Error{ErrorCode::Unsupported,
                 fmt::format("{} sends whole files only, no ranges", shown_url(file.url))};
  }
  if (answer->head.status / 100 != 2) return status_error(answer->head, answer->body);
  const std::optional<ContentRange> range = parse_content_range(answer->head.find("content-range"));
  const bool is_whole_file = answer->head.status == 200 && offset == 0;
  if (answer->body.size() != static_cast<std::size_t>(bytes) ||
      (!is_whole_file && (!range || range->first != offset))) {
    return Error{
        ErrorCode::Corrupt,
        fmt::format("{} answered {} with {} bytes to a request for {} from {}", shown_url(file.url),
                    answer->head.status, answer->body.size(), bytes, offset)};
  }
  return std::move(answer->body);
}

}  // namespace llorch::catalog
