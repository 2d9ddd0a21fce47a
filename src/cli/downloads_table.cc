#include "cli/downloads_table.h"

#include <fmt/format.h>

#include "base/terminal.h"
#include "catalog/under_way.h"
#include "cli/download_view.h"
#include "cli/pool_tables.h"
#include "contract/download_event.h"

namespace llorch::cli {
namespace {

std::string size_text(std::int64_t bytes) {
  return bytes > 0 ? base::human_bytes(bytes) : "-";
}

base::Color color_of(const std::string& state) {
  if (state == "failed") return base::Color::Red;
  return state == "running" ? base::Color::Green : base::Color::None;
}

}  // namespace

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
    const bool has_ended = !text_in(one, "ended_at").empty();
    if (has_ended && !all) continue;
    ++rows;
    const json::Value* progress = one.if_contains("progress");
    contract::DownloadEvent event;
    if (progress != nullptr && progress->is_object())
      event = contract::read_download_event(progress->get_object());
    std::string state = text_in(one, "state");
    const base::Color state_color = color_of(state);
    if (text_in(one, "kind") == "verify" && state == "running") state = "verifying";
    std::string speed = "-";
    if (!has_ended && event.waiting_seconds)
      speed = "waits " + clock_text(static_cast<double>(*event.waiting_seconds));
    else if (!has_ended && event.bytes_per_second > 0)
      speed = base::human_bytes(static_cast<std::int64_t>(event.bytes_per_second)) + "/s";
    const double share = event.bytes_total > 0 ? static_cast<double>(event.bytes_done) /
                                                     static_cast<double>(event.bytes_total)
                                               : 0;
    table.add_row({text_in(one, "id"), text_in(one, "model"), state,
                   event.bytes_total > 0 ? fmt::format("{:.0f} %", share * 100) : "-",
                   size_text(event.bytes_total), speed,
                   age_of(text_in(one, has_ended ? "ended_at" : "started_at"), now)},
                  state_color);
  }
  return rows == 0 ? std::string() : table.render(0, color);
}

json::Array read_downloads_under_way(const base::Home& home) {
  json::Array downloads;
  for (const catalog::ModelUnderWay& one : catalog::list_under_way(home.models())) {
    if (!one.is_running) continue;
    contract::DownloadEvent event;
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
                                     {"progress", contract::to_json(event)},
                                     {"notes", json::Array()},
                                     {"error", nullptr}});
  }
  return downloads;
}

}  // namespace llorch::cli
