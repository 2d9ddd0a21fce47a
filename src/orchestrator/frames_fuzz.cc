// Differential: frames are the events that http::SseReader reads, however the stream is cut; the
// ids that are tapped, and what remains without them, are those of a JSON parser.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "http/sse.h"
#include "orchestrator/frames.h"

namespace {

using namespace llorch;
using namespace llorch::orchestrator;

using Events = std::vector<http::SseEvent>;

Events read_frames(std::string_view text, std::size_t step, bool& is_ok) {
  FrameReader reader;
  Events events;
  is_ok = true;
  for (std::size_t at = 0; at < text.size() && is_ok; at += step) {
    const std::string piece(text.substr(at, step));  // gone after its call
    std::vector<Frame> frames;
    is_ok = reader.feed(piece, frames).ok();
    for (const Frame& frame : frames)
      events.push_back({std::string(frame.event), std::string(frame.data), ""});
  }
  return events;
}

void check_tap(std::string_view data, TailForm form) {
  const Result<json::Value> parsed = json::parse(data);
  if (!parsed.ok() || !parsed->is_object()) return;
  std::vector<std::int32_t> ids;
  const Result<TappedData> tapped = tap_ids(data, form, ids);
  json::Object rest = parsed->get_object();
  const std::string_view name = form == TailForm::Execute ? "ids" : "llorch";
  const json::Value* list = rest.if_contains(name);
  if (list != nullptr && form == TailForm::OpenAi)
    list = list->is_object() ? list->get_object().if_contains("ids") : nullptr;
  if (!tapped.ok()) {
    CHECK(list != nullptr, "ids that cannot be read are there");
    return;
  }
  CHECK(tapped->has_ids == (list != nullptr), "ids are found where there are some");
  if (list != nullptr) {
    CHECK(list->is_array() && list->get_array().size() == ids.size(), "all of them");
    for (std::size_t i = 0; i < ids.size(); ++i)
      CHECK(list->get_array()[i] == json::Value(ids[i]), "as they are");
    rest.erase(name);
  }
  const Result<json::Value> remains = json::parse(tapped->text());
  CHECK(remains.ok() && *remains == json::Value(rest), "nothing else is taken away");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  http::SseReader reader;
  Events expected;
  const bool expected_ok = reader.feed(text, expected).ok();
  for (http::SseEvent& event : expected) {
    event.id.clear();
    if (event.event == "message") event.event.clear();
  }
  bool is_ok = false;
  for (const std::size_t step : {text.size() + 1, std::size_t{data[0] % 7U + 1U}, std::size_t{1}}) {
    Events frames = read_frames(text, step, is_ok);
    for (http::SseEvent& event : frames)
      if (event.event == "message") event.event.clear();
    CHECK(is_ok == expected_ok && frames == expected, "the same events, however it is cut");
  }
  for (const http::SseEvent& event : expected) {
    check_tap(event.data, TailForm::Execute);
    check_tap(event.data, TailForm::OpenAi);
    HeadSwap head({"job", 1, "model"});
    if (const auto swapped = head.swap(event.data)) static_cast<void>(chunk_facts(swapped->rest));
  }
  check_tap(text, TailForm::Execute);
  check_tap(text, TailForm::OpenAi);
  return 0;
}
