#include "http/file_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>

#include "base/check.h"

namespace llorch::http {
namespace {

// Large enough that the hop to another thread does not count, small enough for thousands of
// streams.
constexpr std::int64_t kPieceBytes = 256 * 1024;

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Digits only; a number above the range is its largest value, which lies behind every file's end.
std::optional<std::int64_t> parse_position(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::numeric_limits<std::int64_t>::max();
  return value;
}

// "bytes=0-499", "bytes=500-", "bytes=-500"; nothing when it is anything else.
struct RangeSpec {
  std::optional<std::int64_t> first;  // none: the last `last` bytes
  std::optional<std::int64_t> last;   // none: to the end
};
std::optional<RangeSpec> parse_range(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  if (!equals_ignoring_case(trim(text.substr(0, equals)), "bytes")) return std::nullopt;
  const std::string_view spec = trim(text.substr(equals + 1));
  const std::size_t dash = spec.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view first = spec.substr(0, dash);
  const std::string_view last = spec.substr(dash + 1);
  RangeSpec range{parse_position(first), parse_position(last)};
  if (!range.first && !first.empty()) return std::nullopt;
  if (!range.last && !last.empty()) return std::nullopt;
  if (!range.first && !range.last) return std::nullopt;
  if (range.first && range.last && *range.last < *range.first) return std::nullopt;
  return range;
}

std::string quoted_etag(std::string_view etag) {
  return fmt::format("\"{}\"", etag);
}

Result<std::string> read_piece(const base::PositionedFile& file, std::int64_t offset,
                               std::int64_t bytes) {
  std::string piece(static_cast<std::size_t>(bytes), '\0');
  const Result<std::size_t> count = file.read_at(offset, std::as_writable_bytes(std::span(piece)));
  if (!count.ok()) return count.error();
  if (*count != piece.size())
    return Error{ErrorCode::Conflict,
                 fmt::format("{} became shorter while it was sent", file.path().string())};
  return piece;
}

}  // namespace

ByteRange choose_range(const Request& request, std::int64_t size, std::string_view etag) {
  const ByteRange whole{.kind = ByteRange::Kind::Whole, .offset = 0, .bytes = size};
  const std::optional<std::string_view> text = request.headers.find("Range");
  if (!text || request.method != Method::Get) return whole;
  const std::optional<std::string_view> condition = request.headers.find("If-Range");
  if (condition && (etag.empty() || trim(*condition) != quoted_etag(etag))) return whole;
  const std::optional<RangeSpec> spec = parse_range(*text);
  if (!spec) return whole;

  const ByteRange unsatisfiable{.kind = ByteRange::Kind::Unsatisfiable, .offset = 0, .bytes = 0};
  if (!spec->first) {
    if (*spec->last == 0) return unsatisfiable;
    if (size == 0) return whole;  // satisfiable, and no Content-Range can say so
    const std::int64_t bytes = std::min(*spec->last, size);
    return {.kind = ByteRange::Kind::Part, .offset = size - bytes, .bytes = bytes};
  }
  if (*spec->first >= size) return unsatisfiable;
  const std::int64_t last = std::min(spec->last.value_or(size - 1), size - 1);
  return {.kind = ByteRange::Kind::Part, .offset = *spec->first, .bytes = last - *spec->first + 1};
}

std::string unsatisfied_content_range(std::int64_t size) {
  return fmt::format("bytes */{}", size);
}

Task<Status> send_file(Responder& responder, WorkThreads& threads, FileBody body, ByteRange range) {
  CHECK(range.kind != ByteRange::Kind::Unsatisfiable, "nothing to send");
  Headers headers;
  headers.add("Accept-Ranges", "bytes");
  if (!body.etag.empty()) headers.add("ETag", quoted_etag(body.etag));
  const bool is_part = range.kind == ByteRange::Kind::Part;
  if (is_part)
    headers.add("Content-Range", fmt::format("bytes {}-{}/{}", range.offset,
                                             range.offset + range.bytes - 1, body.size));
  Result<Stream> stream = co_await responder.open_stream(is_part ? 206 : 200, body.content_type,
                                                         std::move(headers), range.bytes);
  if (!stream.ok()) co_return stream.error();
  for (std::int64_t done = 0; done < range.bytes;) {
    const std::int64_t bytes = std::min(kPieceBytes, range.bytes - done);
    std::function<Result<std::string>()> read = [file = body.file, offset = range.offset + done,
                                                 bytes] {
      return read_piece(*file, offset, bytes);
    };
    const Result<std::string> piece = co_await threads.run<std::string>(std::move(read));
    if (!piece.ok()) co_return piece.error();
    const Status written = co_await stream->write(*piece);
    if (!written.ok()) co_return written;
    done += bytes;
  }
  co_return ok_status();
}

}  // namespace llorch::http
