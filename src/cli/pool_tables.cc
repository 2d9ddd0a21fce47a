#include "cli/pool_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/terminal.h"
#include "base/timestamp.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

using base::Color, base::human_bytes, base::printable, base::TextTable;
using contract::PoolWorkerState;

Color color_of(PoolWorkerState state) {
  switch (state) {
    case PoolWorkerState::Ready:
    case PoolWorkerState::Busy:
      return Color::Green;
    case PoolWorkerState::Failed:
      return Color::Red;
    case PoolWorkerState::Starting:
    case PoolWorkerState::Draining:
      return Color::Yellow;
    case PoolWorkerState::Stopped:
      return Color::Dim;
  }
  return Color::None;
}

std::string state_text(const contract::PoolWorker& worker) {
  if (worker.state == PoolWorkerState::Starting && worker.load_progress > 0)
    return fmt::format("starting {:.0f} %", worker.load_progress * 100);
  if (worker.state == PoolWorkerState::Failed && worker.category != contract::ExitCategory::None)
    return fmt::format("failed: {}", contract::name(worker.category));
  return std::string(contract::name(worker.state));
}

std::string backend_text(const contract::PoolWorker& worker) {
  return worker.gpu ? fmt::format("{}:{}", worker.backend, *worker.gpu) : worker.backend;
}

std::string memory_text(const contract::PoolWorker& worker) {
  if (worker.vram_bytes > 0) return human_bytes(worker.vram_bytes) + " VRAM";
  return worker.memory_bytes > 0 ? human_bytes(worker.memory_bytes) : "-";
}

bool is_alive(const contract::PoolWorker& worker) {
  return worker.state < PoolWorkerState::Stopped;
}

}  // namespace

std::string age_of(std::string_view since, std::chrono::system_clock::time_point now) {
  const auto then = base::parse_rfc3339(since);
  if (!then) return {};
  const std::int64_t seconds = std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::seconds>(now - *then).count());
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} m", seconds / 60);
  if (seconds < 86400) return fmt::format("{} h {} m", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{} d", seconds / 86400);
}

std::string workers_table(const std::vector<contract::PoolWorker>& workers,
                          std::chrono::system_clock::time_point now, bool color) {
  if (workers.empty()) return "no workers; `llorch-pool worker spawn cpu --model ID` starts one\n";
  using Align = TextTable::Align;
  TextTable table({Align::Left, Align::Left, Align::Left, Align::Left, Align::Left, Align::Right,
                   Align::Right, Align::Right, Align::Right});
  table.add_row({"ID", "STATE", "MODEL", "BACKEND", "ADDRESS", "SLOTS", "TOK/S", "MEMORY", "AGE"},
                Color::Bold);
  for (const contract::PoolWorker& worker : workers) {
    const bool alive = is_alive(worker);
    table.add_row(
        {printable(worker.id), state_text(worker), printable(worker.model), backend_text(worker),
         worker.uri.empty() || !alive ? "-" : printable(worker.uri),
         alive && worker.slots > 0 ? fmt::format("{}/{}", worker.slots_busy, worker.slots) : "-",
         alive && worker.tokens_per_second > 0 ? fmt::format("{:.1f}", worker.tokens_per_second)
                                               : "-",
         alive ? memory_text(worker) : "-",
         age_of(alive || worker.ended_at.empty() ? worker.started_at : worker.ended_at, now)},
        color_of(worker.state));
  }
  return table.render(0, color, fold_width());
}

std::string host_text(const contract::HostInfo& host, bool color) {
  using Align = TextTable::Align;
  TextTable table({Align::Left, Align::Left});
  table.add_row({"host", fmt::format("{}, {}", printable(host.hostname), printable(host.os))});
  table.add_row({"cpu", fmt::format("{}, {} of {} threads, {}", printable(host.cpu), host.cores,
                                    host.threads, printable(host.isa))});
  table.add_row({"memory", fmt::format("{} free of {}", human_bytes(host.memory_free_bytes),
                                       human_bytes(host.memory_total_bytes))});
  table.add_row({"disk", fmt::format("{} free for models", human_bytes(host.disk_free_bytes))});
  for (const contract::GpuInfo& gpu : host.gpus) {
    std::string text = fmt::format("{}, {} free of {}, driver {}", printable(gpu.name),
                                   human_bytes(gpu.vram_free_bytes),
                                   human_bytes(gpu.vram_total_bytes), printable(gpu.driver));
    if (gpu.power_watts) text += fmt::format(", {:.0f} W", *gpu.power_watts);
    if (gpu.temperature_celsius) text += fmt::format(", {:.0f} °C", *gpu.temperature_celsius);
    if (gpu.utilization) text += fmt::format(", {:.0f} % busy", *gpu.utilization * 100);
    table.add_row({fmt::format("gpu {}", gpu.index), text});
  }
  if (host.gpus.empty())
    table.add_row({"gpu", "none" + (host.gpu_note.empty() ? "" : ": " + printable(host.gpu_note))});
  return table.render(0, color);
}

std::string models_table(const std::vector<contract::ModelEntry>& models, bool color) {
  using Align = TextTable::Align;
  TextTable table({Align::Left, Align::Left, Align::Right, Align::Right});
  table.add_row({"MODEL", "ARCHITECTURE", "SIZE", "CONTEXT"}, Color::Bold);
  std::size_t elsewhere = 0;
  for (const contract::ModelEntry& model : models) {
    if (!model.downloaded) {
      ++elsewhere;
      continue;
    }
    table.add_row({printable(model.id), printable(model.architecture),
                   human_bytes(model.size_bytes),
                   model.context_length ? std::to_string(*model.context_length) : ""});
  }
  std::string text = table.render(0, color, fold_width());
  if (elsewhere > 0)
    text += fmt::format("{} more in the catalog, not here: `llorch-pool models list`\n", elsewhere);
  return text;
}

std::string text_in(const json::Object& object, std::string_view field) {
  const json::Value* value = object.if_contains(field);
  return value != nullptr && value->is_string() ? base::printable(json::view(value->get_string()))
                                                : std::string();
}

}  // namespace llorch::cli
