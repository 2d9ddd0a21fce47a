#include "http/sse.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace llorch::http {
namespace {

constexpr std::string_view kLineEnds = "\r\n";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kMaxRetryDigits = 9;

void append_field(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  std::copy_if(value.begin(), value.end(), std::back_inserter(out),
               [](char c) { return c != '\r' && c != '\n' && c != '\0'; });
  out += '\n';
}

}  // namespace

std::string format_event(std::string_view event, std::string_view data, std::string_view id) {
  std::string out;
  out.reserve(event.size() + data.size() + id.size() + 32);
  if (!event.empty()) append_field(out, "event", event);
  if (!id.empty()) append_field(out, "id", id);
  while (true) {
    const std::size_t end = data.find_first_of(kLineEnds);
    out += "data: ";
    out += data.substr(0, end);
    out += '\n';
    if (end == std::string_view::npos) break;
    data.remove_prefix(data.substr(end).starts_with("\r\n") ? end + 2 : end + 1);
  }
  out += '\n';
  return out;
}

Status SseReader::feed(std::string_view bytes, std::vector<SseEvent>& events) {
  if (failed_) return *failed_;
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const std::size_t end = bytes.find_first_of(kLineEnds);
    if (Status added = append_to_line(bytes.substr(0, end)); !added.ok()) return added;
    if (end == std::string_view::npos) break;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (Status ended = end_line(events); !ended.ok()) return ended;
  }
  return ok_status();
}

Status SseReader::append_to_line(std::string_view text) {
  if (text.size() > limits_.max_line_bytes - line_.size()) {
    return fail(
        fmt::format("event stream: a line is longer than {} bytes", limits_.max_line_bytes));
  }
  line_ += text;
  return ok_status();
}

Status SseReader::end_line(std::vector<SseEvent>& events) {
  std::string_view line = line_;
  if (std::exchange(first_line_, false) && line.starts_with(kByteOrderMark)) {
    line.remove_prefix(kByteOrderMark.size());
  }
  Status status = ok_status();
  if (line.empty()) {
    dispatch(events);
  } else if (const std::size_t colon = line.find(':');
             colon != 0) {  // a leading colon is a comment
    std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    status = take_field(line.substr(0, colon), value);
  }
  line_.clear();
  return status;
}

Status SseReader::take_field(std::string_view name, std::string_view value) {
  if (name == "data") {
    if (value.size() + 1 > limits_.max_event_bytes - data_.size()) {
      return fail(
          fmt::format("event stream: an event is longer than {} bytes", limits_.max_event_bytes));
    }
    if (std::exchange(has_data_, true)) data_ += '\n';
    data_ += value;
  } else if (name == "event") {
    event_ = value;
  } else if (name == "id") {
    if (value.find('\0') == std::string_view::npos) id_ = value;
  } else if (name == "retry" && value.size() <= kMaxRetryDigits) {
    std::uint32_t milliseconds = 0;
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), milliseconds);
    if (error == std::errc() && end == value.data() + value.size()) {
      retry_ = std::chrono::milliseconds(milliseconds);
    }
  }
  return ok_status();
}

void SseReader::dispatch(std::vector<SseEvent>& events) {
  if (std::exchange(has_data_, false)) {
    events.push_back({event_.empty() ? "message" : std::move(event_), std::move(data_), id_});
  }
  event_.clear();
  data_.clear();
}

Error SseReader::fail(std::string message) {
  failed_ = Error{ErrorCode::TooLarge, std::move(message)};
  line_.clear();
  return *failed_;
}

}  // namespace llorch::http
