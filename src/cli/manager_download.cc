#include "cli/manager_download.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "catalog/under_way.h"
#include "cli/download_view.h"
#include "cli/pool_tables.h"
#include "contract/error_table.h"
#include "http/sse.h"
#include "http/url.h"

namespace llorch::cli {
namespace {

using Kind = catalog::DownloadEvent::Kind;

std::string text_of(const json::Object& object, std::string_view field) {
  const json::Value* value = object.if_contains(field);
  return value != nullptr && value->is_string() ? base::printable(json::view(value->get_string()))
                                                : std::string();
}

// What one event of the stream says.
class Follower {
 public:
  explicit Follower(const catalog::OnDownloadEvent& on_event) : on_event_(on_event) {}

  // False: that was the last one.
  bool take(const http::SseEvent& event) {
    if (event.event == "error") {
      outcome_ = contract::parse_error_event(event.data);
      return false;
    }
    const Result<json::Value> value = json::parse(event.data);
    if (!value.ok() || !value->is_object()) return true;  // not ours to judge
    if (event.event == "done") {
      outcome_ = value->get_object();
      return false;
    }
    catalog::DownloadEvent told = catalog::read_download_event(value->get_object());
    if (event.event == "note") told.kind = Kind::Note;
    if (told.model.empty()) told.model = model_;
    model_ = told.model;
    // The newest state comes again with every change; where it was found is told once.
    if (told.kind == Kind::Resolved && std::exchange(has_resolved_, true)) return true;
    if (on_event_) on_event_(told);
    return true;
  }

  std::optional<Result<json::Object>> take_outcome() { return std::move(outcome_); }

 private:
  const catalog::OnDownloadEvent& on_event_;
  std::string model_;
  bool has_resolved_ = false;
  std::optional<Result<json::Object>> outcome_;
};

std::string size_text(std::int64_t bytes) {
  return bytes > 0 ? base::human_bytes(bytes) : "-";
}

base::Color color_of(const std::string& state) {
  if (state == "failed") return base::Color::Red;
  return state == "running" ? base::Color::Green : base::Color::None;
}

}  // namespace

Result<json::Object> follow_download(PoolClient& client, const std::string& id,
                                     const catalog::OnDownloadEvent& on_event,
                                     std::stop_token stop) {
  Follower follower(on_event);
  http::SseReader reader;
  Status readable = ok_status();
  const Status streamed = client.stream(
      fmt::format("/v2/downloads/{}/events", http::percent_encode(id)),
      [&](std::string_view bytes) {
        std::vector<http::SseEvent> events;
        readable = reader.feed(bytes, events);
        if (!readable.ok()) return false;
        for (const http::SseEvent& event : events) {
          if (!follower.take(event)) return false;
        }
        return true;
      },
      std::move(stop));
  if (std::optional<Result<json::Object>> outcome = follower.take_outcome())
    return std::move(*outcome);
  if (!readable.ok()) return readable.error();
  if (!streamed.ok()) return streamed.error();
  return Error{ErrorCode::Unavailable,
               "the pool manager ended in the middle of it; the same command goes on from here"};
}

std::string downloads_table(const json::Array& downloads, bool all,
                            std::chrono::system_clock::time_point now, bool color) {
  using Align = base::TextTable::Align;
  base::TextTable table({Align::Left, Align::Left, Align::Left, Align::Right, Align::Right,
                         Align::Right, Align::Right});
  table.add_row({"DOWNLOAD", "MODEL", "STATE", "DONE", "SIZE", "SPEED", "AGE"}, base::Color::Bold);
  int rows = 0;
  for (const json::Value& value : downloads) {
    if (!value.is_object()) continue;
    const json::Object& one = value.get_object();
    const bool has_ended = !text_of(one, "ended_at").empty();
    if (has_ended && !all) continue;
    ++rows;
    const json::Value* progress = one.if_contains("progress");
    catalog::DownloadEvent event;
    if (progress != nullptr && progress->is_object())
      event = catalog::read_download_event(progress->get_object());
    std::string state = text_of(one, "state");
    const base::Color state_color = color_of(state);
    if (text_of(one, "kind") == "verify" && state == "running") state = "verifying";
    std::string speed = "-";
    if (!has_ended && event.waiting_seconds)
      speed = "waits " + clock_text(static_cast<double>(*event.waiting_seconds));
    else if (!has_ended && event.bytes_per_second > 0)
      speed = base::human_bytes(static_cast<std::int64_t>(event.bytes_per_second)) + "/s";
    const double share = event.bytes_total > 0 ? static_cast<double>(event.bytes_done) /
                                                     static_cast<double>(event.bytes_total)
                                               : 0;
    table.add_row({text_of(one, "id"), text_of(one, "model"), state,
                   event.bytes_total > 0 ? fmt::format("{:.0f} %", share * 100) : "-",
                   size_text(event.bytes_total), speed,
                   age_of(text_of(one, has_ended ? "ended_at" : "started_at"), now)},
                  state_color);
  }
  return rows == 0 ? std::string() : table.render(0, color);
}

json::Array read_downloads_under_way(const base::Home& home) {
  json::Array downloads;
  for (const catalog::ModelUnderWay& one : catalog::list_under_way(home.models())) {
    if (!one.is_running) continue;
    catalog::DownloadEvent event;
    event.model = one.model;
    event.files_done = one.now.files_done;
    event.files_total = one.now.files_total;
    event.bytes_done = one.now.bytes_done;
    event.bytes_total = one.now.bytes_total;
    downloads.push_back(json::Object{{"id", fmt::format("process-{}", one.now.pid)},
                                     {"kind", "download"},
                                     {"model", one.model},
                                     {"ref", one.now.ref},
                                     {"state", "running"},
                                     {"started_at", ""},
                                     {"ended_at", ""},
                                     {"progress", catalog::to_json(event)},
                                     {"notes", json::Array()},
                                     {"error", nullptr}});
  }
  return downloads;
}

}  // namespace llorch::cli
