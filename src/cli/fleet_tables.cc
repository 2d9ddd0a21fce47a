#include "cli/fleet_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "base/terminal.h"
#include "base/timestamp.h"
#include "base/utf8.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

using base::Color, base::human_bytes, base::printable, base::TextTable;
using Align = TextTable::Align;

constexpr std::size_t kUsualWidth = 80;
constexpr std::size_t kUsualHeight = 24;
constexpr std::size_t kWideWidth = 120;  // from here on there is room for more

bool is_wide(const View& view) {
  return view.width >= kWideWidth;
}

std::string show(const TextTable& table, const View& view, std::size_t indent = 0) {
  return table.render(indent, view.color, view.fold_width);
}

// At most `columns` characters, the last an ellipsis where something is left out.
std::string fit(std::string_view text, std::size_t columns) {
  std::string clean = printable(text);
  if (base::count_scalars(clean) <= columns) return clean;
  std::size_t bytes = 0;
  for (std::size_t seen = 0; seen + 1 < columns && bytes < clean.size(); ++seen) {
    ++bytes;
    while (bytes < clean.size() && (static_cast<unsigned char>(clean[bytes]) & 0xC0U) == 0x80U)
      ++bytes;
  }
  return clean.substr(0, bytes) + "…";
}

std::string age_since(std::string_view when, const View& view) {
  const auto then = base::parse_rfc3339(when);
  if (!then) return "-";
  return duration_text(std::max(0.0, std::chrono::duration<double>(view.now - *then).count()));
}

// "[####    ] 3.20 of 7.70 GiB": what of a device's memory is taken.
std::string memory_bar(const contract::FleetDevice& device, const View& view) {
  if (device.total_bytes <= 0) return "-";
  const std::int64_t used = std::max<std::int64_t>(0, device.total_bytes - device.free_bytes);
  return fmt::format(
      "{} {} of {}",
      base::progress_bar(static_cast<double>(used) / static_cast<double>(device.total_bytes),
                         is_wide(view) ? 20 : 6),
      human_bytes(used), human_bytes(device.total_bytes));
}

// Its name where there is room, else its kind: the first device of a host is its processor.
std::string device_text(const contract::FleetDevice& device, const View& view) {
  if (device.total_bytes <= 0) return "-";
  if (is_wide(view) && !device.name.empty()) return fit(device.name, 24);
  return device.number == 0 ? "cpu" : fmt::format("gpu {}", device.number - 1);
}

Color color_of_host(const contract::HostView& host) {
  if (host.state == "connected") return Color::Green;
  if (host.state == "gone") return Color::Red;
  return host.state == "unknown" ? Color::Dim : Color::Yellow;
}

Color color_of_job(const contract::TaskView& task) {
  if (task.status == "failed") return Color::Red;
  if (task.status == "running") return Color::Green;
  if (task.status == "queued" || task.status == "dispatched") return Color::Yellow;
  return Color::Dim;
}

std::string where(const contract::TaskView& task) {
  if (task.host.empty()) return "-";
  return task.worker.empty() ? task.host : fmt::format("{}/{}", task.host, task.worker);
}

// Why hosts are away, and what is to be known of those that are not; a line each.
std::string remarks_text(const std::vector<contract::HostView>& hosts, const View& view) {
  std::string text;
  for (const contract::HostView& host : hosts) {
    for (const std::string& remark : {host.state == "connected" ? "" : host.reason, host.note}) {
      if (remark.empty()) continue;
      text += base::wrap(fmt::format("  {}: {}", fit(host.name, 24), printable(remark)), view.width,
                         4) +
              "\n";
    }
  }
  return text;
}

// The devices of each host: its name stands in the first line only.
std::string devices_text(const std::vector<contract::HostView>& hosts, const View& view) {
  TextTable table({Align::Left, Align::Left, Align::Left, Align::Left, Align::Right, Align::Right});
  table.add_row({"HOST", "STATE", "DEVICE", "MEMORY", "WORKERS", "JOBS"}, Color::Bold);
  for (const contract::HostView& host : hosts) {
    bool is_first = true;
    std::vector<contract::FleetDevice> devices = host.devices;
    if (devices.empty()) devices.emplace_back();
    for (const contract::FleetDevice& device : devices) {
      table.add_row({is_first ? fit(host.name, is_wide(view) ? 20 : 12) : "",
                     is_first ? printable(host.state) : "", device_text(device, view),
                     memory_bar(device, view), is_first ? std::to_string(host.workers) : "",
                     is_first ? std::to_string(host.running) : ""},
                    color_of_host(host));
      is_first = false;
    }
  }
  std::string text = show(table, view);
  return text + remarks_text(hosts, view);
}

std::string speed_text(double tokens_per_second) {
  return tokens_per_second > 0 ? fmt::format("{:.1f}", tokens_per_second) : "-";
}

std::string head_text(const contract::FleetStatus& status, std::string_view url, const View& view) {
  const std::string text =
      base::wrap(fmt::format("orchestrator at {}, up {}, version {}", printable(url),
                             duration_text(status.uptime_seconds), printable(status.version)),
                 view.width, 2);
  std::string jobs = fmt::format(
      "jobs: {} queued (room for {}), {} running; {} completed, {} failed, {} "
      "cancelled, {} refused",
      status.queued, status.jobs_max, status.running, status.completed_total, status.failed_total,
      status.cancelled_total, status.refused_total);
  if (status.moves_total > 0) jobs += fmt::format("; {} moved", status.moves_total);
  return text + "\n" + base::wrap(jobs, view.width, 2) + "\n";
}

std::string models_line(const std::vector<contract::FleetModel>& models, const View& view) {
  std::vector<std::string> here;
  std::string text;
  for (const contract::FleetModel& model : models) {
    std::int64_t places = 0;
    for (const contract::ModelPlace& place : model.places) places += place.downloaded ? 1 : 0;
    if (places > 0) here.push_back(fmt::format("{} ({})", printable(model.name), places));
    if (!model.load_error.empty())
      text +=
          base::wrap(fmt::format("  {}: {}", printable(model.name), printable(model.load_error)),
                     view.width, 4) +
          "\n";
  }
  if (here.empty()) return text;
  return base::wrap(fmt::format("models (hosts that have them): {}", fmt::join(here, ", ")),
                    view.width, 2) +
         "\n" + text;
}

// One line for each: "fetching llama-3.2-1b on anna: [####      ] 40 %, about 3 m".
std::string loads_text(const std::vector<contract::FleetLoad>& loads, const View& view) {
  std::string text;
  for (const contract::FleetLoad& load : loads) {
    std::string line = fmt::format("{} {} on {}", printable(load.stage),
                                   fit(load.model, is_wide(view) ? 40 : 24), fit(load.host, 16));
    if (load.progress) {
      line +=
          fmt::format(": {} {:.0f} %", base::progress_bar(*load.progress, is_wide(view) ? 20 : 10),
                      *load.progress * 100);
    }
    if (load.eta_ms > 0) line += fmt::format(", about {}", duration_text(load.eta_ms / 1000));
    text += base::wrap(line, view.width, 2) + "\n";
  }
  return text;
}

// " (anna worker-cpu-0, bert load on device 0, …)", or nothing.
std::string candidates_text(const contract::WhyRefusal& refusal) {
  if (refusal.candidates.empty()) return {};
  const bool has_more = refusal.count > static_cast<std::int64_t>(refusal.candidates.size());
  return fmt::format(" ({}{})", printable(fmt::format("{}", fmt::join(refusal.candidates, ", "))),
                     has_more ? ", …" : "");
}

}  // namespace

View terminal_view(bool color) {
  return {std::chrono::system_clock::now(), terminal_width(), color, fold_width()};
}

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualWidth;
  return size.ws_col;
}

std::size_t terminal_height() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return kUsualHeight;
  return size.ws_row;
}

std::string duration_text(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", std::max(0.0, seconds));
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} m", whole / 60);
  if (whole < 86400) return fmt::format("{} h {} m", whole / 3600, whole / 60 % 60);
  return fmt::format("{} d", whole / 86400);
}

std::string queue_text(std::int64_t position) {
  return position <= 1 ? "next in its line" : fmt::format("{} before it", position - 1);
}

std::string status_text(const contract::FleetStatus& status, std::string_view url,
                        const View& view) {
  std::string text = head_text(status, url, view);
  text += "\n" + (status.hosts.empty() ? "no hosts; `llorch up` starts this one's pool\n"
                                       : devices_text(status.hosts, view));
  text += "\n" + (status.workers.empty() ? "no workers; the first job for a model starts one\n"
                                         : workers_text(status.workers, view));
  if (!status.loads.empty()) text += "\n" + loads_text(status.loads, view);
  if (const std::string models = models_line(status.models, view); !models.empty())
    text += "\n" + models;
  if (!status.tasks.empty()) text += "\n" + jobs_text(status.tasks, view);
  if (!status.audit_head.empty()) text += "\naudit " + printable(status.audit_head) + "\n";
  return text;
}

std::string hosts_text(const std::vector<contract::HostView>& hosts, const View& view) {
  if (hosts.empty())
    return "no hosts; `llorch up` starts this one's pool, `llorch up HOST` another\n";
  TextTable table({Align::Left, Align::Left, Align::Left, Align::Left, Align::Right, Align::Right,
                   Align::Right, Align::Right});
  table.add_row({"HOST", "KIND", "STATE", "SINCE", "CORES", "DISK FREE", "MODELS", "WORKERS"},
                Color::Bold);
  for (const contract::HostView& host : hosts) {
    table.add_row(
        {fit(host.name, 24), printable(host.kind),
         host.step.empty() ? printable(host.state)
                           : fmt::format("{} ({})", printable(host.state), printable(host.step)),
         age_since(host.since, view), host.cores > 0 ? std::to_string(host.cores) : "-",
         host.disk_free_bytes > 0 ? human_bytes(host.disk_free_bytes) : "-",
         std::to_string(host.models), std::to_string(host.workers)},
        color_of_host(host));
  }
  std::string text = show(table, view);
  return text + remarks_text(hosts, view);
}

std::string workers_text(const std::vector<contract::FleetWorker>& workers, const View& view) {
  TextTable table({Align::Left, Align::Left, Align::Left, Align::Right, Align::Right, Align::Right,
                   Align::Right});
  table.add_row({"WORKER", "MODEL", "STATE", "SLOTS", "TOK/S", "PROMPT/S", "MEMORY"}, Color::Bold);
  for (const contract::FleetWorker& worker : workers) {
    const std::string id = worker.id.empty() ? "(starting)" : worker.id;
    const std::string state = worker.leaving ? "leaving" : worker.state;
    table.add_row({fit(fmt::format("{}/{}", worker.host, id), is_wide(view) ? 44 : 26),
                   fit(worker.model, is_wide(view) ? 30 : 14), printable(state),
                   worker.slots > 0 ? fmt::format("{}/{}", worker.busy, worker.slots) : "-",
                   speed_text(worker.decode_tps), speed_text(worker.prefill_tps),
                   worker.memory_bytes > 0 ? human_bytes(worker.memory_bytes) : "-"},
                  state == "serving" ? Color::Green : Color::Yellow);
  }
  return show(table, view);
}

std::string jobs_text(const std::vector<contract::TaskView>& tasks, const View& view) {
  if (tasks.empty()) return "no jobs; `llorch jobs submit --model M --prompt P` makes one\n";
  // Ids and numbers have their width; what is left goes to the model and the place.
  constexpr std::size_t kModel = 8;
  constexpr std::size_t kWhere = 7;
  const std::size_t more =
      std::min<std::size_t>(view.width - std::min(view.width, kUsualWidth), 60);
  TextTable table({Align::Left, Align::Left, Align::Left, Align::Left, Align::Right, Align::Right});
  table.add_row({"JOB", "STATE", "MODEL", "WHERE", "TOKENS", "AGE"}, Color::Bold);
  for (const contract::TaskView& task : tasks) {
    std::string state = task.status;
    if (task.status == "queued" && task.queue_position)
      state = fmt::format("queued {}", *task.queue_position);
    table.add_row(
        {printable(task.job_id), printable(state), fit(task.model, kModel + more / 2),
         fit(where(task).size() <= kWhere + more / 2 ? where(task) : task.host, kWhere + more / 2),
         std::to_string(task.tokens_out), age_since(task.submitted_at, view)},
        color_of_job(task));
  }
  return show(table, view);
}

std::string job_text(const contract::TaskView& task, const View& view) {
  TextTable table({Align::Left, Align::Left});
  const auto add = [&table](const char* name, const std::string& text) {
    if (!text.empty()) table.add_row({name, printable(text)});
  };
  add("job", task.job_id);
  add("state", task.status);
  add("model", task.model);
  add("kind", fmt::format("{}, {}, {}", task.kind, task.cls, task.holder));
  add("mode", task.mode);
  add("labels", fmt::format("{}", fmt::join(task.labels, ", ")));
  add("key", task.key);
  add("where", task.host.empty() ? "" : where(task));
  add("submitted", task.submitted_at);
  add("deadline", task.deadline);
  add("ended", task.ended_at);
  if (task.queue_position) {
    const std::string when = "about " + duration_text(task.predicted_start_ms.value_or(0) / 1000);
    add("queue", fmt::format("{}, {}", queue_text(*task.queue_position),
                             task.waits_for.empty() ? when : task.waits_for));
  }
  add("seed", std::to_string(task.seed));
  add("tokens",
      fmt::format("{} of the prompt, {} of the answer", task.prompt_tokens, task.tokens_out));
  add("computed", duration_text(static_cast<double>(task.device_ms) / 1000));
  add("end", task.stop_reason);
  add("error", task.code.empty() ? "" : fmt::format("{}: {}", task.code, task.message));
  std::string text = table.render(0, view.color);
  if (task.attempts.empty()) return text;
  TextTable tries({Align::Right, Align::Left, Align::Left, Align::Left});
  tries.add_row({"TRY", "WORKER", "SENT", "WHAT BECAME OF IT"}, Color::Bold);
  for (const contract::TaskAttempt& attempt : task.attempts) {
    std::string fate = attempt.started_at.empty() ? "not begun" : "begun " + attempt.started_at;
    if (!attempt.lost_at.empty())
      fate = fmt::format("lost {} ({})", attempt.lost_at, attempt.cause);
    tries.add_row({std::to_string(attempt.number),
                   printable(fmt::format("{}/{}", attempt.host, attempt.worker)),
                   printable(attempt.dispatched_at), printable(fate)});
  }
  return text + "\n" + show(tries, view);
}

std::string why_text(const contract::WhyView& why, const View& view) {
  std::string text = fmt::format("{} is {}\n", printable(why.job_id), printable(why.status));
  if (!why.candidates.empty()) {
    TextTable table({Align::Left, Align::Right, Align::Right, Align::Right, Align::Right,
                     Align::Right, Align::Right});
    table.add_row({"CANDIDATE", "DONE IN", "WAIT", "LOAD", "PROMPT", "ANSWER", "HARM"},
                  Color::Bold);
    constexpr double kLongMs = 100'000;
    const auto time = [](double ms) {
      if (ms > kLongMs) return duration_text(ms / 1000);
      return ms > 0 ? fmt::format("{:.0f} ms", ms) : std::string("-");
    };
    bool is_best = true;
    for (const contract::WhyLine& line : why.candidates) {
      const std::string worker =
          line.worker.empty() ? fmt::format("new on device {}", line.device) : line.worker;
      table.add_row({fit(fmt::format("{}/{}", line.host, worker), is_wide(view) ? 44 : 26),
                     time(line.finish_ms), time(line.wait_ms), time(line.load_ms),
                     time(line.prefill_ms), time(line.decode_ms), time(line.harm_ms)},
                    is_best ? Color::Green : Color::None);
      is_best = false;
    }
    text += "\nnow:\n" + show(table, view, 2);
  }
  for (const contract::WhyRefusal& refusal : why.refused)
    text += base::wrap(fmt::format("  {} refused: {}{}", refusal.count, printable(refusal.reason),
                                   candidates_text(refusal)),
                       view.fold_width, 4) +
            "\n";
  const auto add_sheet = [&text](std::string_view sheet) {
    while (!sheet.empty()) {
      const std::size_t end = std::min(sheet.size(), sheet.find('\n'));
      text += "  " + printable(sheet.substr(0, end)) + "\n";
      sheet.remove_prefix(std::min(sheet.size(), end + 1));
    }
  };
  // One that is live shows its candidates above.
  if (why.candidates.empty() && why.refused.empty()) add_sheet(why.sheet);
  for (const contract::WhyDispatch& dispatch : why.dispatches) {
    text +=
        fmt::format("\ntry {} went to {}/{} at {}:\n", dispatch.attempt, printable(dispatch.host),
                    printable(dispatch.worker), printable(dispatch.at));
    add_sheet(dispatch.sheet);
  }
  if (why.candidates.empty() && why.refused.empty() && why.dispatches.empty() && why.sheet.empty())
    text += "nothing is known about where it could go\n";
  return text;
}

std::string keys_text(const std::vector<contract::KeyView>& keys, const View& view) {
  if (keys.empty()) return "no keys; `llorch keys add NAME` makes one\n";
  TextTable table({Align::Left, Align::Left, Align::Left, Align::Left, Align::Right, Align::Right,
                   Align::Right, Align::Right});
  table.add_row({"ID", "NAME", "SCOPE", "MODELS", "TOKENS TODAY", "EVER", "JOBS", "NOW"},
                Color::Bold);
  for (const contract::KeyView& key : keys) {
    std::string today = base::human_count(key.tokens_today);
    if (key.tokens_per_day > 0) today += " of " + base::human_count(key.tokens_per_day);
    table.add_row(
        {printable(key.id), fit(key.name, 16), key.revoked ? "revoked" : printable(key.scope),
         key.models.empty() ? "all" : fit(fmt::format("{}", fmt::join(key.models, " ")), 16), today,
         base::human_count(key.tokens_ever), std::to_string(key.jobs_ever),
         std::to_string(key.jobs_now)},
        key.revoked ? Color::Dim : Color::None);
  }
  return show(table, view);
}

}  // namespace llorch::cli
