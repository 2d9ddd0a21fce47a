// llorch bench: how fast answers come, measured as somebody who asks sees it, of a worker of this
// command's own, of a pool's, or of the hosts of the fleet.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <stop_token>

#include "base/interrupt.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "base/version.h"
#include "cli/answering_worker.h"
#include "cli/fleet_command.h"
#include "cli/host_door.h"
#include "cli/measure.h"
#include "cli/output.h"
#include "cli/parse_words.h"
#include "cli/worker_flags.h"

namespace llorch::cli {
namespace {

using base::Color;
using base::TextTable;

constexpr const char* kFooter = R"(Examples:
  llorch bench
  llorch bench -m tinyllama --streams 1,8,32 --repeat 5
  llorch bench -m model.gguf --threads 4 -n 32
  llorch bench -m tinyllama --host anna,bert   each host of the fleet by itself
  llorch bench -m tinyllama --host all --json > today.json

Where an orchestrator runs (`llorch up`) its fleet is measured, queue and network
included; else, and with --local, a worker of this command's own. Numbers are medians;
± is the median distance of the repetitions from them.

first token: a prompt of 8 tokens, until the first token is here. prefill: tokens of a
long prompt a second, until the first token. decode: tokens a second of all streams
together, from the first request to the last token. What the machine could do at best,
without a server: llorch-bench.

Exit code: 0; 1 when an answer failed; 130 after Ctrl-C, which cancels every request.)";

struct BenchArguments {
  WorkerArguments worker;
  MeasurePlan plan;
  std::string streams = "1,4,16";
  std::string hosts;
  std::int64_t limit_seconds = 120;
};

// One place that was measured.
struct Place {
  std::string name;  // of a host; "fleet", "this machine"
  ModelFacts facts;
  double load_seconds = 0;  // of a worker of our own
  Measured measured;
  std::string error;  // empty: it went well
};

Result<std::vector<std::int32_t>> read_streams(const std::string& text) {
  std::vector<std::int32_t> streams;
  for (const std::string& word : split_words(text)) {
    std::int32_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size() || number < 1 ||
        number > kStreamsMax) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("--streams has {}, expected numbers from 1 to {} with commas "
                               "between them",
                               base::quoted(word), kStreamsMax)};
    }
    if (std::find(streams.begin(), streams.end(), number) == streams.end())
      streams.push_back(number);
  }
  if (streams.empty() || streams.size() > 16)
    return Error{ErrorCode::InvalidArgument, "--streams has 1 to 16 numbers"};
  return streams;
}

std::string figure_label(const std::string& name) {
  constexpr std::string_view kDecode = "decode_tps_";
  if (name == "first_token_ms") return "first token";
  if (name == "prefill_tps") return "prefill";
  if (!name.starts_with(kDecode)) return name;
  const std::string streams = name.substr(kDecode.size());
  return fmt::format("decode, {} stream{}", streams, streams == "1" ? "" : "s");
}

std::string figure_text(const Figure& figure) {
  const double median = figure.median();
  return fmt::format("{:.{}f} {} ± {:.0f} %", median, median < 100 ? 1 : 0, figure.unit,
                     figure.noise() * 100);
}

std::string bench_text(const std::string& model, const std::vector<Place>& places, bool color) {
  std::vector<TextTable::Align> columns(places.size() + 1, TextTable::Align::Right);
  columns[0] = TextTable::Align::Left;
  TextTable table(columns);
  std::vector<std::string> head = {base::printable(model)};
  std::vector<std::string> names;
  for (const Place& place : places) {
    head.push_back(base::printable(
        place.facts.device.empty() ? place.name : place.name + ", " + place.facts.device));
    for (const Figure& figure : place.measured.figures)
      if (std::find(names.begin(), names.end(), figure.name) == names.end())
        names.push_back(figure.name);
  }
  table.add_row(head, Color::Bold);
  for (const std::string& name : names) {
    std::vector<std::string> row = {figure_label(name)};
    for (const Place& place : places) {
      const auto& figures = place.measured.figures;
      const auto found = std::find_if(figures.begin(), figures.end(),
                                      [&](const Figure& figure) { return figure.name == name; });
      row.push_back(found != figures.end() ? figure_text(*found) : "-");
    }
    table.add_row(row);
  }
  std::string text = table.render(0, color);
  for (const Place& place : places) {
    for (const std::string& why : place.measured.skipped)
      text += fmt::format("{}: {}\n", place.name, why);
    if (!place.error.empty())
      text += fmt::format("{}: {}\n", place.name,
                          base::paint(base::printable(place.error), Color::Red, color));
  }
  return text;
}

json::Value bench_json(const std::string& model, const std::vector<Place>& places) {
  json::Array list;
  for (const Place& place : places) {
    json::Array figures;
    for (const Figure& figure : place.measured.figures) figures.emplace_back(to_json(figure));
    json::Object one{
        {"name", place.name},
        {"device", place.facts.device},
        {"device_class", place.facts.device_class},
        {"build", place.facts.build},
        {"context", place.facts.context},
        {"figures", std::move(figures)},
        {"skipped", json::Array(place.measured.skipped.begin(), place.measured.skipped.end())}};
    if (place.load_seconds > 0)
      one["load_ms"] = static_cast<std::int64_t>(place.load_seconds * 1e3);
    if (!place.error.empty()) one["error"] = place.error;
    list.emplace_back(std::move(one));
  }
  return json::Object{{"version", base::version()}, {"model", model}, {"places", std::move(list)}};
}

// Measures one place, with a line that moves on a terminal.
Place measure_place(const std::string& name, const ModelClient& client, const MeasurePlan& plan,
                    const std::stop_token& stop) {
  Place place{.name = name};
  base::StatusLine line(stderr);
  Result<Measured> measured = measure_model(
      client, plan,
      [&](std::string_view what, double done) {
        line.show(fmt::format("{} {}: {}", base::progress_bar(done, 20),
                              base::printable(name).substr(0, 24), what));
      },
      stop);
  line.clear();
  if (measured.ok())
    place.measured = measured.take();
  else
    place.error = measured.error().message;
  if (Result<ModelFacts> facts = client.facts(); facts.ok()) place.facts = facts.take();
  return place;
}

int show(const FleetContext& context, const std::string& model, const std::vector<Place>& places) {
  const bool failed = std::any_of(places.begin(), places.end(),
                                  [](const Place& place) { return !place.error.empty(); });
  const int printed = context.json_output ? print_json(bench_json(model, places))
                                          : print(bench_text(model, places, context.color));
  return printed != 0 || failed ? kFailure : 0;
}

int bench_fleet(const FleetContext& context, const BenchArguments& arguments) {
  Result<std::vector<std::string>> hosts = std::vector<std::string>{""};  // whichever it takes
  if (!arguments.hosts.empty()) hosts = find_hosts(context, arguments.hosts);
  if (!hosts.ok()) return fail(hosts.error());
  std::stop_source stop;
  const base::InterruptWatch watch([&stop] { stop.request_stop(); });
  std::vector<Place> places;
  for (const std::string& host : *hosts) {
    Result<FleetClient> client = find_orchestrator(target_of(context));
    if (!client.ok()) return fail(client.error());
    const FleetModel model(client.take(), arguments.worker.choice.model, host);
    places.push_back(
        measure_place(host.empty() ? "fleet" : host, model, arguments.plan, stop.get_token()));
    if (watch.interrupted()) return kInterrupted;
  }
  return show(context, arguments.worker.choice.model, places);
}

int bench_worker(const FleetContext& context, const BenchArguments& arguments) {
  Result<WorkerChoice> choice = find_choice(arguments.worker, context.environment);
  if (!choice.ok()) return fail(choice.error());
  std::vector<Place> places;
  bool was_interrupted = false;
  {
    AnsweringWorker worker(choice.take());
    std::stop_source stop;
    const base::InterruptWatch watch([&] {
      stop.request_stop();
      worker.interrupt();
    });
    const Status started = worker.start();
    was_interrupted = watch.interrupted();
    if (!started.ok() && !was_interrupted) return fail(started.error());
    if (!was_interrupted) {
      places.push_back(measure_place(worker.choice().pool ? "pool" : "this machine",
                                     WorkerModel(worker.uri()), arguments.plan, stop.get_token()));
      if (!worker.choice().pool) places.back().load_seconds = worker.load_seconds();
      was_interrupted = watch.interrupted();
      if (!places.back().error.empty() && !was_interrupted) {
        const std::string why = worker.obituary();
        if (!why.empty()) places.back().error += fmt::format(" ({})", why);
      }
    }
  }
  if (was_interrupted) return kInterrupted;
  return show(context, arguments.worker.choice.model, places);
}

int bench(const FleetContext& context, BenchArguments& arguments) {
  Result<std::vector<std::int32_t>> streams = read_streams(arguments.streams);
  if (!streams.ok()) {
    complain(streams.error().message);
    return kUsage;
  }
  arguments.plan.streams = streams.take();
  arguments.plan.limit = std::chrono::seconds(arguments.limit_seconds);
  const bool names_fleet = !context.url.empty() && !arguments.worker.local;
  const Result<std::optional<FleetTarget>> fleet =
      find_fleet(arguments.worker, context.environment);
  if (!fleet.ok()) return fail(fleet.error());
  if (names_fleet || *fleet) return bench_fleet(context, arguments);
  if (!arguments.hosts.empty()) {
    return fail({ErrorCode::NotFound,
                 "--host needs a fleet: `llorch up` starts one; without --host this machine is "
                 "measured"});
  }
  return bench_worker(context, arguments);
}

}  // namespace

void add_bench_command(CLI::App& app, FleetContext& context) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command =
      add_fleet_command(app, context, "bench", "how fast answers come, here or on every host",
                        kFooter, [&context, arguments] { return bench(context, *arguments); });
  add_worker_flags(*command, arguments->worker);
  command->add_option("--host", arguments->hosts, "these hosts, each by itself: HOST, a,b or all")
      ->type_name("HOST");
  command->add_option("--streams", arguments->streams, "answers at once (1,4,16)")
      ->type_name("N,N");
  command->add_option("-n,--max-tokens", arguments->plan.tokens, "tokens of each answer (64)")
      ->type_name("N")
      ->check(CLI::Range(2, 4096).description(""));
  command
      ->add_option("-p,--prompt-tokens", arguments->plan.prefill_tokens,
                   "of the long prompt (512); at most half the context")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20).description(""));
  command->add_option("--repeat", arguments->plan.repeats, "each measurement so often (3)")
      ->type_name("N")
      ->check(CLI::Range(1, kRepeatsMax).description(""));
  command
      ->add_option("--time", arguments->limit_seconds,
                   "seconds for each host, after which nothing is begun (120)")
      ->type_name("S")
      ->check(CLI::Range(1, 86'400).description(""));
}

}  // namespace llorch::cli
