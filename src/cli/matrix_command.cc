// llorch matrix: every model on every backend on every host, tried and written down.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <stop_token>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/own_program.h"
#include "base/terminal.h"
#include "base/timestamp.h"
#include "base/version.h"
#include "catalog/model_catalog.h"
#include "cli/fleet_command.h"
#include "cli/fleet_tables.h"
#include "cli/host_door.h"
#include "cli/matrix_report.h"
#include "cli/matrix_run.h"
#include "cli/output.h"
#include "cli/parse_words.h"
#include "contract/backend_kind.h"
#include "contract/model_entry.h"
#include "pool/devices.h"

namespace llorch::cli {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{64} << 20;
constexpr std::size_t kCellsMax = 4096;

constexpr const char* kFooter = R"(Examples:
  llorch matrix --quick
  llorch matrix --models tinyllama,small=/models/small.gguf --backends cpu
  llorch matrix --hosts local,anna --json matrix.json --html matrix.html
  llorch matrix --json today.json --baseline yesterday.json
  llorch matrix --models tinyllama,tinyllama:safetensors --fetch
  llorch matrix --models tinyllama,phi3,mistral --random tokenizers
  llorch matrix --show today.json --html today.html
  llorch matrix --show here.json,there.json --json all.json

For each model, backend and host: would it fit, does it load, does it compute what it
should, does it stop when told to, does it bear odd requests and many of them, how fast
is it, does it stay within its plan. One cell that fails stops no other.

MODEL: a name of the catalog, a path, NAME=PATH, or builtin; by default builtin and all
that are on this machine. Host local: workers of this command's own; any other is a host
of the fleet (`llorch up HOST`), asked through the orchestrator.

--random DIR: where a model of --models cannot be had, weights of exactly its shape and
numbers are drawn (seed 1) and kept in the cache folder; DIR has a tokenizer for each:
DIR/phi3/tokenizer.json, DIR/phi3.gguf. As large and as fast; the table says "random".

--json FILE is also its memory: a run that was cut off goes on behind the cells that are
in it; --again tries those that failed once more.
--show of several files puts the runs of several machines together, each cell with its
machine; of a cell that two files have of one machine the last file's is taken.
--baseline FILE: what is slower than in that file, by more than both runs saw of noise
or by half, what passed there and fails or is skipped now, and other ids of the same build
are failures. Figures of another machine, of a quick run beside a whole one and of random
weights beside real ones are not compared, and the table says so (unlike).

Exit code: 0 when nothing failed (skipped is not failed); 1 otherwise; 130 after Ctrl-C.)";

struct MatrixArguments {
  std::string models;
  std::string backends;
  std::string hosts{kLocalHost};
  std::string json_file;
  std::string html_file;
  std::string markdown_file;
  std::string baseline_file;
  std::string shown_files;
  std::string tokenizers;
  bool quick = false;
  bool again = false;
  bool fetch = false;
  std::int32_t soak = 0;  // 0: what the scale says
};

Result<std::vector<MatrixModel>> find_models(const MatrixArguments& arguments,
                                             const base::Home& home) {
  std::vector<MatrixModel> models;
  if (!arguments.models.empty()) {
    for (const std::string& word : split_words(arguments.models))
      models.push_back(read_matrix_model(word));
  } else {
    models.push_back({std::string(contract::kBuiltinModel), std::string(contract::kBuiltinModel)});
    const Result<catalog::CatalogContent> content =
        catalog::ModelCatalog(home.catalog_file()).read();
    if (!content.ok()) return content.error();
    for (const contract::ModelEntry& entry : content->models)
      if (entry.downloaded) models.push_back({entry.id, entry.id});
  }
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto same = [&](const MatrixModel& other) { return other.name == models[i].name; };
    if (std::count_if(models.begin(), models.end(), same) > 1)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("two models are called {}; name one of them: --models NAME=PATH",
                               models[i].name)};
  }
  if (models.empty()) return Error{ErrorCode::InvalidArgument, "--models names none"};
  return models;
}

Result<MatrixWish> read_wish(const FleetContext& context, const MatrixArguments& arguments) {
  MatrixWish wish;
  Result<std::vector<MatrixModel>> models = find_models(arguments, context.home);
  if (!models.ok()) return models.error();
  wish.models = models.take();
  wish.backends =
      arguments.backends.empty() ? contract::backend_names() : split_words(arguments.backends);
  for (const std::string& backend : wish.backends)
    if (contract::find_backend_kind(backend) == nullptr)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("--backends has {}, expected cpu or cuda", backend)};
  Result<std::vector<std::string>> hosts = find_hosts(context, arguments.hosts);
  if (!hosts.ok()) return hosts.error();
  wish.hosts = hosts.take();
  if (wish.models.size() * wish.backends.size() * wish.hosts.size() > kCellsMax)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("that would be more than {} cells", kCellsMax)};
  wish.fetches = arguments.fetch;
  wish.tokenizers = arguments.tokenizers;
  std::error_code ignored;
  if (!wish.tokenizers.empty() && !std::filesystem::is_directory(wish.tokenizers, ignored))
    return Error{ErrorCode::NotFound,
                 fmt::format("--random: {} is no folder; expected one with a tokenizer for each "
                             "model: phi3/tokenizer.json or phi3.gguf",
                             arguments.tokenizers)};
  wish.is_quick = arguments.quick;
  if (arguments.quick) wish.scale = quick_scale();
  if (arguments.soak > 0) wish.scale.soak = arguments.soak;
  return wish;
}

Result<MatrixResult> read_result(const std::string& file) {
  const Result<std::string> text = base::read_text_file(file, kFileBytesMax);
  if (!text.ok()) return text.error();
  Result<MatrixResult> result = parse_matrix(*text);
  if (!result.ok()) return result.error().in(file);
  return result;
}

// What an earlier run left in the file, without those wanted cells that are to be tried again.
Result<MatrixResult> resume(const MatrixArguments& arguments, const std::vector<CellName>& wanted,
                            const std::string& machine) {
  MatrixResult result;
  std::error_code ignored;
  if (!arguments.json_file.empty() && std::filesystem::exists(arguments.json_file, ignored)) {
    Result<MatrixResult> read = read_result(arguments.json_file);
    if (!read.ok()) return read;
    result = read.take();
    if (machines_of(result).size() > 1)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{} holds cells of several machines, put together by --show; name "
                               "another file, and put them together again: --show {},FILE",
                               arguments.json_file, arguments.json_file)};
    // Another program, another machine: its numbers are others.
    const bool is_of_here = result.machine.empty() || result.machine == machine;
    if (result.version != base::version() || !is_of_here) {
      complain(fmt::format("{} is of version {} on {}; it is begun anew", arguments.json_file,
                           result.version, result.machine));
      result.cells.clear();
    }
    std::erase_if(result.cells, [&](const MatrixCell& cell) {
      if (std::find(wanted.begin(), wanted.end(), cell.name) == wanted.end()) return false;
      return cell.state() == CheckState::Skipped || (cell.is_quick && !arguments.quick) ||
             (arguments.again && cell.state() == CheckState::Failed);
    });
  }
  result.version = base::version();
  result.machine = machine;
  return result;
}

std::string describe_machine(const base::Home& home) {
  const contract::HostInfo host = pool::Devices().read(home.models());
  std::string text = fmt::format("{}, {}, {} cores, {}", host.cpu, host.isa, host.cores,
                                 base::human_bytes(host.memory_total_bytes));
  for (const contract::GpuInfo& gpu : host.gpus) text += ", " + gpu.name;
  return text;
}

// The table in place on a terminal; elsewhere a line for each cell that is done.
class LiveTable {
 public:
  LiveTable(const MatrixResult& result, std::vector<CellName> wanted, bool enabled)
      : result_(result),
        wanted_(std::move(wanted)),
        is_terminal_(enabled && ::isatty(STDERR_FILENO) != 0),
        is_enabled_(enabled) {}

  void show(const MatrixMoment& now) {
    if (!is_terminal_) return;
    wipe();
    const std::string text =
        matrix_screen(result_, wanted_, now, terminal_width(), terminal_height());
    write_err(text);
    lines_ = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  void done(const MatrixCell& cell) {
    if (is_terminal_ || !is_enabled_) return;
    write_err(fmt::format("{}: {}\n", base::printable(text_of(cell.name)), name(cell.state())));
  }
  void wipe() {
    if (lines_ > 0) write_err(fmt::format("\x1b[{}F\x1b[J", lines_));
    lines_ = 0;
  }

 private:
  const MatrixResult& result_;
  const std::vector<CellName> wanted_;
  const bool is_terminal_;
  const bool is_enabled_;
  std::size_t lines_ = 0;
};

Status keep(const std::string& file, const std::string& text) {
  if (file.empty()) return ok_status();
  Status written = base::write_file_atomically(file, text);
  return written.ok() ? written : Status(written.error().in(file));
}

// Cells in the order in which they were asked for, others behind them.
void order_cells(MatrixResult& result, const std::vector<CellName>& wanted) {
  const auto place = [&](const MatrixCell& cell) {
    return std::find(wanted.begin(), wanted.end(), cell.name) - wanted.begin();
  };
  std::stable_sort(result.cells.begin(), result.cells.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
}

// Runs what the result lacks. False: interrupted.
Result<bool> run_missing(const FleetContext& context, const MatrixArguments& arguments,
                         const MatrixWish& wish, MatrixResult& result) {
  const std::vector<CellName> wanted = cells_of(wish);
  const MatrixPlace place{context.environment, context.home, base::own_folder(),
                          target_of(context)};
  std::stop_source stop;
  const base::InterruptWatch watch([&stop] { stop.request_stop(); });
  LiveTable live(result, wanted, !context.json_output);
  for (const CellName& name : wanted) {
    if (result.find(name) != nullptr) continue;
    MatrixCell cell = run_cell(
        wish, name, place,
        [&](std::string_view check, std::size_t number, std::size_t count) {
          live.show({name, std::string(check), number, count});
        },
        stop.get_token());
    if (watch.interrupted()) {
      live.wipe();
      return false;
    }
    cell.machine = result.machine;
    if (std::optional<CheckResult> agrees = compare_backends(result, cell))
      cell.checks.push_back(std::move(*agrees));
    live.done(cell);
    result.made_at = base::to_rfc3339(std::chrono::system_clock::now());
    cell.made_at = result.made_at;
    result.cells.push_back(std::move(cell));
    order_cells(result, wanted);
    if (Status kept = keep(arguments.json_file, json::serialize(to_json(result)) + "\n");
        !kept.ok()) {
      live.wipe();
      return kept.error();
    }
  }
  live.wipe();
  return true;
}

base::Color color_of(Change change) {
  switch (change) {
    case Change::Worse:
      return base::Color::Red;
    case Change::Better:
      return base::Color::Green;
    case Change::NotCompared:
      return base::Color::Dim;
  }
  return base::Color::None;
}

std::string differences_text(const std::vector<Difference>& differences, bool color) {
  std::string text;
  for (const Difference& difference : differences) {
    text +=
        fmt::format("{} {}: {}\n",
                    base::paint(fmt::format("{:<9}", name(difference.change)),
                                color_of(difference.change), color),
                    base::printable(where_of(difference)), base::printable(difference.sentence));
  }
  return text;
}

json::Object report_json(const MatrixResult& result, const std::vector<Difference>& differences) {
  json::Object object = to_json(result);
  json::Array list;
  for (const Difference& difference : differences)
    list.push_back(json::Object{{"model", difference.cell.model},
                                {"backend", difference.cell.backend},
                                {"host", difference.cell.host},
                                {"what", difference.what},
                                {"sentence", difference.sentence},
                                {"change", name(difference.change)},
                                {"is_regression", difference.is_regression()}});
  object["differences"] = std::move(list);
  return object;
}

// Writes the pages, prints the table, and says by the exit code how it went.
int report(const FleetContext& context, const MatrixArguments& arguments,
           const MatrixResult& result, const std::optional<MatrixResult>& before,
           const std::vector<CellName>& wanted) {
  const std::vector<Difference> differences =
      before ? compare(result, *before) : std::vector<Difference>{};
  for (const auto& [file, text] : {std::pair{arguments.html_file, matrix_html(result, differences)},
                                   std::pair{arguments.markdown_file, matrix_markdown(result)}})
    if (const Status kept = keep(file, text); !kept.ok()) return fail(kept.error());
  const int printed = context.json_output
                          ? print_json(report_json(result, differences))
                          : print(matrix_table(result, wanted, nullptr, context.color) + "\n" +
                                  matrix_remarks(result, context.color) +
                                  differences_text(differences, context.color));
  const bool is_worse = std::any_of(differences.begin(), differences.end(),
                                    [](const Difference& one) { return one.is_regression(); });
  return printed != 0 || is_worse || result.count(CheckState::Failed) > 0 ? kFailure : 0;
}

// Earlier runs' files as they are; nothing runs.
int show(const FleetContext& context, const MatrixArguments& arguments,
         const std::optional<MatrixResult>& before) {
  std::vector<MatrixResult> runs;
  for (const std::string& file : split_words(arguments.shown_files)) {
    Result<MatrixResult> read = read_result(file);
    if (!read.ok()) return fail(read.error());
    runs.push_back(read.take());
  }
  const MatrixResult result = put_together(std::move(runs));
  if (const Status kept = keep(arguments.json_file, json::serialize(to_json(result)) + "\n");
      !kept.ok())
    return fail(kept.error());
  return report(context, arguments, result, before, {});
}

int matrix(const FleetContext& context, const MatrixArguments& arguments) {
  std::optional<MatrixResult> before;  // read first: it may be the file that is written
  if (!arguments.baseline_file.empty()) {
    Result<MatrixResult> read = read_result(arguments.baseline_file);
    if (!read.ok()) return fail(read.error());
    before = read.take();
  }
  if (!arguments.shown_files.empty()) return show(context, arguments, before);
  Result<MatrixWish> wish = read_wish(context, arguments);
  if (!wish.ok()) return fail(wish.error());
  Result<MatrixResult> result = resume(arguments, cells_of(*wish), describe_machine(context.home));
  if (!result.ok()) return fail(result.error());
  const Result<bool> ran = run_missing(context, arguments, *wish, *result);
  if (!ran.ok()) return fail(ran.error());
  if (!*ran) {
    if (!arguments.json_file.empty())
      complain(fmt::format("interrupted; the same command goes on behind the {} cells in {}",
                           result->cells.size(), arguments.json_file));
    return kInterrupted;
  }
  return report(context, arguments, *result, before, cells_of(*wish));
}

}  // namespace

void add_matrix_command(CLI::App& app, FleetContext& context) {
  auto arguments = std::make_shared<MatrixArguments>();
  CLI::App* command = app.add_subcommand(
      "matrix", "tries every model on every backend on every host, and writes it down");
  command->set_help_flag("-h,--help", "print this help");
  command->add_option("--models", arguments->models, "these models (builtin and all that are here)")
      ->type_name("A,B");
  command->add_option("--backends", arguments->backends, "of cpu and cuda (both)")
      ->type_name("A,B");
  command->add_option("--hosts", arguments->hosts, "local, hosts of the fleet, or all (local)")
      ->type_name("H,I");
  command->add_flag("--fetch", arguments->fetch, "models of --models that are not here");
  command
      ->add_option("--random", arguments->tokenizers,
                   "draw weights for models that cannot be had, with the tokenizers of DIR")
      ->type_name("DIR");
  command->add_flag("--quick", arguments->quick, "fewer requests and repetitions of everything");
  command->add_option("--soak", arguments->soak, "requests of the soak (1000; quick: 100)")
      ->type_name("N")
      ->check(CLI::Range(1, 10'000'000).description(""));
  command
      ->add_option("--json", arguments->json_file,
                   "keep the result in FILE, cell by cell; - prints it instead of the table")
      ->type_name("FILE");
  command->add_option("--html", arguments->html_file, "write a page with charts")
      ->type_name("FILE");
  command->add_option("--markdown", arguments->markdown_file, "write the table as Markdown")
      ->type_name("FILE");
  command->add_option("--baseline", arguments->baseline_file, "the JSON file of an earlier run")
      ->type_name("FILE");
  command->add_option("--show", arguments->shown_files, "draw earlier runs' files, run nothing")
      ->type_name("FILE,FILE");
  command->add_flag("--again", arguments->again, "cells of --json that failed once more");
  command
      ->add_option("--orchestrator", context.url,
                   "the orchestrator to ask, when it is not this home's own")
      ->type_name("URL");
  command->footer(kFooter);
  command->callback([&context, arguments] {
    if (arguments->json_file == "-") {
      context.json_output = true;
      arguments->json_file.clear();
    }
    context.chosen = [&context, arguments] { return matrix(context, *arguments); };
  });
}

}  // namespace llorch::cli
