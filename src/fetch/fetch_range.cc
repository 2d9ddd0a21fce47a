#include <fmt/format.h>

#include <chrono>

#include "base/check.h"
#include "fetch/fetch_text.h"
#include "fetch/transfer.h"
#include "fetch/transfer_requests.h"

namespace llorch::fetch {
namespace {

constexpr std::int64_t kRangeInMemoryMax = std::int64_t{256} << 20;
constexpr std::chrono::milliseconds kRangeDeadline{600'000};

}  // namespace

Result<std::string> fetch_range(const RemoteFile& file, std::int64_t offset, std::int64_t bytes,
                                const TransferOptions& options, std::stop_token stop) {
  CHECK(offset >= 0 && bytes > 0 && bytes <= kRangeInMemoryMax, "a range that fits into memory");
  TextRequest request;
  request.request = request_for(file, file.url, ByteRange{offset, bytes});
  request.max_bytes = static_cast<std::size_t>(bytes);
  request.deadline = kRangeDeadline;
  Result<TextAnswer> answer =
      fetch_text(request, fetch_options(options), options.retry, std::move(stop));
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

}  // namespace llorch::fetch
