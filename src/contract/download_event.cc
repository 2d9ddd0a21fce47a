#include "contract/download_event.h"

#include "base/enum_names.h"

namespace llorch::contract {

namespace {

constexpr base::EnumNames<DownloadEvent::Kind::Done> kKindNames("resolved", "progress", "verifying",
                                                                "file_done", "note", "done");

}  // namespace

std::string_view name(DownloadEvent::Kind kind) {
  return kKindNames[kind];
}

template <class V, Described<DownloadEvent> T>
void describe(V& v, T& event) {
  v("event", event.kind, {.names = kKindNames.words()});
  v("model", event.model);
  v("files_done", event.files_done, {.min = 0});
  v("files_total", event.files_total, {.min = 0});
  v("bytes_done", event.bytes_done, {.min = 0});
  v("bytes_total", event.bytes_total, {.min = 0});
  v("file", event.file, {.omit_empty = true});
  v("bytes_per_second", event.bytes_per_second, {.omit_empty = true});
  v("seconds_left", event.seconds_left);
  v("waiting_seconds", event.waiting_seconds, {.min = 0});
  v("waiting_for", event.waiting_for, {.omit_empty = true});
  v("text", event.text, {.omit_empty = true});
}

DownloadEvent read_download_event(const json::Object& object) {
  json::FieldReader reader(object);
  FieldTaker taker(reader);
  DownloadEvent event;
  describe(taker, event);
  return event;
}

json::Object to_json(const DownloadEvent& event) {
  return write_fields(event);
}

template <>
json::Object schema_of<DownloadEvent>() {
  return described_schema<DownloadEvent>(SchemaOf::Answer);
}

}  // namespace llorch::contract
