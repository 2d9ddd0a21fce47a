// How a download is getting on: what the command line draws and the API streams.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "contract/fields.h"

namespace llorch::contract {

struct DownloadEvent {
  enum class Kind : std::uint8_t { Resolved, Progress, Verifying, FileDone, Note, Done };
  Kind kind = Kind::Progress;
  std::string model;
  std::string file;  // Progress, FileDone
  std::int64_t files_done = 0;
  std::int64_t files_total = 0;
  std::int64_t bytes_done = 0;  // of the whole model
  std::int64_t bytes_total = 0;
  double bytes_per_second = 0;
  std::optional<double> seconds_left;
  // How long nothing has come, and from which host; nothing: it comes.
  std::optional<std::int64_t> waiting_seconds;
  std::string waiting_for;
  std::string text;  // Note
};
json::Object to_json(const DownloadEvent& event);
template <>
json::Object schema_of<DownloadEvent>();
// What to_json wrote, from another process: what is not there or not understood stays empty.
DownloadEvent read_download_event(const json::Object& object);
// "resolved", "progress", …
std::string_view name(DownloadEvent::Kind kind);
using OnDownloadEvent = std::function<void(const DownloadEvent& event)>;

}  // namespace llorch::contract
