#include "orchestrator/frames.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/json.h"

namespace llorch::orchestrator {
namespace {

constexpr std::size_t kFrameBytesMax = std::size_t{4} << 20;
constexpr std::string_view kChoices = ",\"choices\":[";
constexpr std::string_view kIndex = "{\"index\":";

// One field of a frame in our own form: the name, then the value behind ": ".
bool take_field(std::string_view line, std::string_view name, std::string_view& value) {
  if (!line.starts_with(name)) return false;
  value = line.substr(name.size());
  if (value.starts_with(' ')) value.remove_prefix(1);
  return true;
}

enum class BlockKind : std::uint8_t { Event, Nothing, Odd };

// The lines of one event, without the empty line behind them.
BlockKind read_block(std::string_view block, Frame& frame) {
  bool has_data = false;
  bool has_event = false;
  while (!block.empty()) {
    const std::size_t end = std::min(block.find('\n'), block.size());
    const std::string_view line = block.substr(0, end);
    block.remove_prefix(std::min(end + 1, block.size()));
    std::string_view value;
    if (line.empty() || line.front() == ':') continue;
    if (!has_data && take_field(line, "data:", value)) {
      has_data = true;
      frame.data = value;
    } else if (!has_event && take_field(line, "event:", value)) {
      has_event = true;
      frame.event = value;
    } else if (!take_field(line, "id:", value)) {
      return BlockKind::Odd;
    }
  }
  return has_data ? BlockKind::Event : BlockKind::Nothing;
}

std::string_view tail_start(TailForm form) {
  return form == TailForm::Execute ? ",\"ids\":[" : ",\"llorch\":{\"ids\":[";
}
std::string_view tail_end(TailForm form) {
  return form == TailForm::Execute ? "]}" : "]}}";
}

// Decimal numbers between commas, as our workers write them.
bool read_numbers(std::string_view text, std::vector<std::int32_t>& ids) {
  const std::size_t had = ids.size();
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(at, end, id);
    const bool is_plain = error == std::errc() && *at != '-' && (*at != '0' || stop - at == 1);
    if (is_plain) ids.push_back(id);
    if (is_plain && stop == end) return true;
    if (!is_plain || *stop != ',') {
      ids.resize(had);
      return false;
    }
    at = stop + 1;
  }
}

// Where the member with the ids begins, when the data ends as our workers end it.
std::optional<std::size_t> find_tail(std::string_view data, TailForm form,
                                     std::vector<std::int32_t>& ids) {
  const std::string_view end = tail_end(form);
  if (!data.ends_with(end)) return std::nullopt;
  const std::size_t last = data.size() - end.size();  // of the bracket
  std::size_t first = last;
  while (first > 0 &&
         (data[first - 1] == ',' || (data[first - 1] >= '0' && data[first - 1] <= '9')))
    --first;
  if (first == last) return std::nullopt;
  const std::string_view start = tail_start(form);
  if (!data.substr(0, first).ends_with(start)) return std::nullopt;
  if (!read_numbers(data.substr(first, last - first), ids)) return std::nullopt;
  return first - start.size();
}

Error bad_ids(std::string_view why) {
  return {ErrorCode::Corrupt,
          "a worker's event has ids in a form that cannot be read: " + std::string(why)};
}

Result<TappedData> tap_whole(std::string_view data, TailForm form, std::vector<std::int32_t>& ids) {
  Result<json::Value> parsed = json::parse(data);
  if (!parsed.ok()) return bad_ids(parsed.error().message);
  json::Object* object = parsed->if_object();
  if (object == nullptr) return bad_ids("the data is no object");
  const std::string_view member = form == TailForm::Execute ? "ids" : "llorch";
  const json::Value* found = object->if_contains(member);
  if (found != nullptr && form == TailForm::OpenAi)
    found = found->is_object() ? found->get_object().if_contains("ids") : nullptr;
  TappedData tapped{.was_odd = true, .before = data};
  if (found == nullptr) return tapped;
  if (!found->is_array()) return bad_ids("'ids' is no list");
  for (const json::Value& value : found->get_array()) {
    const std::int64_t* id = value.if_int64();
    if (id == nullptr || *id < 0 || *id > std::numeric_limits<std::int32_t>::max())
      return bad_ids("an id is no token");
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  object->erase(member);
  tapped.anew = json::serialize(*parsed);
  tapped.has_ids = true;
  return tapped;
}

}  // namespace

Status FrameReader::feed_odd(std::string_view bytes, std::vector<Frame>& frames) {
  odd_events_.clear();
  Status read = odd_->feed(bytes, odd_events_);
  for (const http::SseEvent& event : odd_events_)
    frames.push_back({event.event == "message" ? std::string_view() : event.event, event.data});
  return read;
}

Status FrameReader::feed(std::string_view bytes, std::vector<Frame>& frames) {
  if (odd_) return feed_odd(bytes, frames);
  std::string_view text = bytes;
  if (!rest_.empty()) {
    kept_ = std::move(rest_);
    rest_.clear();
    kept_ += bytes;
    text = kept_;
  }
  while (true) {
    const std::size_t end = text.find("\n\n");
    const bool is_odd = text.substr(0, end).find('\r') != std::string_view::npos;
    if (end == std::string_view::npos && !is_odd) break;
    Frame frame;
    const BlockKind kind = is_odd ? BlockKind::Odd : read_block(text.substr(0, end + 1), frame);
    if (kind == BlockKind::Odd) {
      odd_.emplace();
      // A mark at the start of a stream is skipped, and only there.
      if (!is_first_) {
        Status begun = odd_->feed("\n", odd_events_);
        if (!begun.ok()) return begun;
      }
      return feed_odd(text, frames);
    }
    is_first_ = false;
    if (kind == BlockKind::Event) frames.push_back(frame);
    text.remove_prefix(end + 2);
  }
  if (text.size() > kFrameBytesMax)
    return Error{ErrorCode::TooLarge, "an event of a worker's stream has no end"};
  rest_ = text;
  return ok_status();
}

Result<TappedData> tap_ids(std::string_view data, TailForm form, std::vector<std::int32_t>& ids) {
  if (const std::optional<std::size_t> tail = find_tail(data, form, ids))
    return TappedData{.has_ids = true, .before = data.substr(0, *tail)};
  // A quote inside a JSON string is escaped, so these bytes are a name.
  const std::string_view name = form == TailForm::Execute ? "\"ids\"" : "\"llorch\"";
  if (data.find(name) == std::string_view::npos) return TappedData{.before = data};
  return tap_whole(data, form, ids);
}

bool HeadSwap::learn(std::string_view theirs) {
  Result<json::Value> parsed = json::parse(std::string(theirs) + "}");
  if (!parsed.ok() || !parsed->is_object()) return false;
  json::Object& object = parsed->get_object();
  if (const json::Value* id = object.if_contains("id"); id != nullptr && id->is_string())
    worker_id_ = json::view(id->get_string());
  object["id"] = head_.id;
  object["created"] = head_.created;
  object["model"] = head_.model;
  theirs_ = theirs;
  ours_ = json::serialize(*parsed);
  ours_.pop_back();
  return true;
}

std::optional<HeadSwap::Swapped> HeadSwap::swap(std::string_view data) {
  const bool is_known = !theirs_.empty() && data.starts_with(theirs_) &&
                        data.substr(theirs_.size()).starts_with(kChoices);
  if (!is_known) {
    const std::size_t end = data.find(kChoices);
    if (end == std::string_view::npos || !learn(data.substr(0, end))) return std::nullopt;
  }
  return Swapped{ours_, data.substr(theirs_.size())};
}

ChunkFacts chunk_facts(std::string_view rest) {
  ChunkFacts facts;
  if (!rest.starts_with(kChoices)) return facts;
  rest.remove_prefix(kChoices.size());
  if (!rest.starts_with(kIndex)) return facts;
  rest.remove_prefix(kIndex.size());
  std::uint32_t choice = 0;
  const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), choice);
  if (error != std::errc()) return facts;
  facts.choice = choice;
  rest.remove_prefix(static_cast<std::size_t>(stop - rest.data()));
  facts.is_role = rest.starts_with(",\"delta\":{\"role\":");
  facts.finishes = rest.find("\"finish_reason\":\"") != std::string_view::npos;
  return facts;
}

}  // namespace llorch::orchestrator
