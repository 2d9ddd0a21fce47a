#include "catalog/download.h"

namespace llorch::catalog {

std::string_view name(DownloadEvent::Kind kind) {
  switch (kind) {
    case DownloadEvent::Kind::Resolved:
      return "resolved";
    case DownloadEvent::Kind::Progress:
      return "progress";
    case DownloadEvent::Kind::Verifying:
      return "verifying";
    case DownloadEvent::Kind::FileDone:
      return "file_done";
    case DownloadEvent::Kind::Note:
      return "note";
    case DownloadEvent::Kind::Done:
      return "done";
  }
  return "progress";
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

}  // namespace llorch::catalog
