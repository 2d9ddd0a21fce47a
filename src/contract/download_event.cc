#include "contract/download_event.h"

#include <algorithm>

#include "base/enum_names.h"

namespace llorch::contract {

std::string_view name(DownloadEvent::Kind kind) {
  static constexpr base::EnumNames<DownloadEvent::Kind::Done> kNames(
      "resolved", "progress", "verifying", "file_done", "note", "done");
  return kNames[kind];
}

namespace {

std::string text_field(const json::Object& object, std::string_view field) {
  const json::Value* value = object.if_contains(field);
  return value != nullptr && value->is_string() ? std::string(json::view(value->get_string()))
                                                : std::string();
}

std::optional<double> number_field(const json::Object& object, std::string_view field) {
  const json::Value* value = object.if_contains(field);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  return value->to_number<double>();
}

std::int64_t count_field(const json::Object& object, std::string_view field) {
  const json::Value* value = object.if_contains(field);
  return value != nullptr && value->is_int64() ? std::max<std::int64_t>(0, value->get_int64()) : 0;
}

}  // namespace

DownloadEvent read_download_event(const json::Object& object) {
  using Kind = DownloadEvent::Kind;
  DownloadEvent event;
  const std::string kind = text_field(object, "event");
  for (const Kind one :
       {Kind::Resolved, Kind::Progress, Kind::Verifying, Kind::FileDone, Kind::Note, Kind::Done}) {
    if (kind == name(one)) event.kind = one;
  }
  event.model = text_field(object, "model");
  event.file = text_field(object, "file");
  event.files_done = count_field(object, "files_done");
  event.files_total = count_field(object, "files_total");
  event.bytes_done = count_field(object, "bytes_done");
  event.bytes_total = count_field(object, "bytes_total");
  event.bytes_per_second = number_field(object, "bytes_per_second").value_or(0);
  event.seconds_left = number_field(object, "seconds_left");
  if (object.contains("waiting_seconds"))
    event.waiting_seconds = count_field(object, "waiting_seconds");
  event.waiting_for = text_field(object, "waiting_for");
  event.text = text_field(object, "text");
  return event;
}

json::Object to_json(const DownloadEvent& event) {
  json::Object object{{"event", name(event.kind)},      {"model", event.model},
                      {"files_done", event.files_done}, {"files_total", event.files_total},
                      {"bytes_done", event.bytes_done}, {"bytes_total", event.bytes_total}};
  if (!event.file.empty()) object["file"] = event.file;
  if (event.bytes_per_second > 0) object["bytes_per_second"] = event.bytes_per_second;
  if (event.seconds_left) object["seconds_left"] = *event.seconds_left;
  if (event.waiting_seconds) {
    object["waiting_seconds"] = *event.waiting_seconds;
    object["waiting_for"] = event.waiting_for;
  }
  if (!event.text.empty()) object["text"] = event.text;
  return object;
}

}  // namespace llorch::contract
