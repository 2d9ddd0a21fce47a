#include "cli/matrix_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/terminal.h"
#include "catalog/describe.h"
#include "catalog/known_models.h"
#include "catalog/model_catalog.h"
#include "cli/local_worker.h"
#include "contract/backend_kind.h"
#include "contract/model_entry.h"
#include "pool/devices.h"
#include "pool/memory_plan.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

void add(MatrixCell& cell, std::string_view check, CheckResult result) {
  result.name = check;
  result.detail = base::printable(result.detail);
  cell.checks.push_back(std::move(result));
}

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

const MatrixModel* find_model(const MatrixWish& wish, const std::string& name) {
  const auto found = std::find_if(wish.models.begin(), wish.models.end(),
                                  [&](const MatrixModel& model) { return model.name == name; });
  return found != wish.models.end() ? &*found : nullptr;
}

Result<contract::ModelEntry> find_entry(const MatrixModel& model, const MatrixPlace& place) {
  if (model.ref == contract::kBuiltinModel) return catalog::builtin_entry();
  std::error_code ignored;
  if (fs::exists(model.ref, ignored)) {
    contract::ModelEntry described;
    described.id = model.name;
    const Status read = catalog::describe_files(fs::absolute(model.ref, ignored), described);
    if (!read.ok()) return read.error();
    return described;
  }
  return catalog::ModelCatalog(place.home.catalog_file()).find(model.ref);
}

// What could be fetched by that name.
std::optional<contract::ModelEntry> find_known(const std::string& ref) {
  for (contract::ModelEntry& known : catalog::known_models())
    if (known.id == ref) return std::move(known);
  return std::nullopt;
}

fs::path drawn_folder(const MatrixPlace& place) {
  return place.home.cache / "random";
}

// The model as it is here, fetched or drawn where it was not; nothing: the cell says why.
std::optional<contract::ModelEntry> get_model(const MatrixModel& model, const MatrixWish& wish,
                                              const MatrixPlace& place, const OnCheck& on_check,
                                              const std::stop_token& stop, MatrixCell& cell) {
  Result<contract::ModelEntry> entry = find_entry(model, place);
  const auto is_here = [&] { return entry.ok() && entry->downloaded; };
  const std::optional<contract::ModelEntry> known = find_known(model.ref);
  if (!is_here() && known && wish.fetches) {
    on_check("fetch", 0, matrix_checks().size() + 2);
    add(cell, "fetch", fetch_model(model.ref, place.programs, stop));
    entry = find_entry(model, place);
  }
  if (!is_here() && known && !wish.tokenizers.empty()) {
    on_check("draw", 0, matrix_checks().size() + 2);
    DrawnModel drawn =
        draw_model(*known, wish.tokenizers, drawn_folder(place), place.programs, stop);
    add(cell, "draw", std::move(drawn.check));
    if (!drawn.file.empty()) entry = find_entry({model.name, drawn.file.string()}, place);
  }
  if (is_here() || (!known && entry.ok())) return entry.take();
  if (!known || (!cell.checks.empty() && cell.checks.back().state == CheckState::Passed))
    add(cell, "plan", failed(entry.ok() ? "its files are not here" : entry.error().message));
  else if (cell.checks.empty())
    add(cell, "plan",
        skipped(fmt::format("its files are not here: `llorch-pool models download {}` fetches "
                            "them, or --fetch",
                            model.ref)));
  return std::nullopt;
}

// The checks behind the load, each whatever the others said.
void run_checks(Subject& subject, MatrixCell& cell, const OnCheck& on_check,
                const std::function<std::string()>& obituary) {
  const std::span<const Check> checks = matrix_checks();
  for (std::size_t i = 0; i < checks.size() && !subject.stop.stop_requested(); ++i) {
    on_check(checks[i].name, i + 2, checks.size() + 2);
    CheckResult result = checks[i].run(subject, cell);
    if (result.state == CheckState::Failed) {
      const std::string why = obituary();
      if (!why.empty()) {
        add(cell, checks[i].name, failed(fmt::format("{} ({})", result.detail, why)));
        return;  // nobody is there any more
      }
    }
    add(cell, checks[i].name, std::move(result));
  }
}

// What is known of a model that answers; false when it does not, and the cell says so.
bool make_acquaintance(Subject& subject, MatrixCell& cell, std::string_view check) {
  Result<std::vector<std::int32_t>> known = find_known_ids(subject.client, subject.stop);
  if (!known.ok()) {
    add(cell, check, failed(known.error().message));
    return false;
  }
  subject.known = known.take();
  Result<Asked> story = choose_story(subject.client, subject.stop);
  if (!story.ok()) {
    add(cell, check, failed(story.error().message));
    return false;
  }
  subject.story = story.take();
  Result<ModelFacts> facts = subject.client.facts();
  if (!facts.ok()) {
    add(cell, check, failed(facts.error().message));
    return false;
  }
  subject.facts = facts.take();
  cell.quant = subject.facts.quant;
  cell.device_class = subject.facts.device_class;
  cell.build = subject.facts.build;
  cell.context = subject.facts.context;
  return true;
}

// Why this machine cannot run workers of that kind; empty: it can.
std::string lacks(const contract::BackendKind& kind, const contract::HostInfo& host,
                  const fs::path& program) {
  std::error_code ignored;
  if (!fs::exists(program, ignored))
    return fmt::format("{} is not among the programs of this build", kind.program);
  if (kind.needs_gpu && host.gpus.empty())
    return host.gpu_note.empty() ? "there is no GPU" : host.gpu_note;
  return {};
}

// The plan of a worker of our own; nothing when there will be none, and the cell says why.
std::optional<pool::MemoryPlan> make_plan(const contract::ModelEntry& entry,
                                          const MatrixPlace& place, MatrixCell& cell) {
  const contract::BackendKind* kind = contract::find_backend_kind(cell.name.backend);
  const pool::Planner planner{
      .worker_cpu = place.programs / contract::find_backend_kind(contract::kCpu)->program,
      .worker_cuda = place.programs / contract::find_backend_kind(contract::kCuda)->program,
      .measurements_file = {},
      .home = place.home,
      .environment = place.environment};
  const contract::HostInfo host = pool::Devices().read(place.home.models());
  if (const std::string why = lacks(*kind, host, planner.program(*kind)); !why.empty()) {
    add(cell, "plan", skipped(why));
    return std::nullopt;
  }
  pool::PlanRequest request{.backend = cell.name.backend};
  if (kind->needs_gpu) request.gpu = 0;
  const Result<std::vector<pool::MemoryPlan>> plans = planner.plan(entry, request, host);
  if (!plans.ok()) {
    const bool cannot = plans.error().code == ErrorCode::Unsupported;
    add(cell, "plan", cannot ? skipped(plans.error().message) : failed(plans.error().message));
    return std::nullopt;
  }
  const pool::MemoryPlan& plan = plans->front();
  if (!plan.fits) {
    add(cell, "plan",
        skipped(fmt::format("does not fit: needs {}, {} are free; {}",
                            base::human_bytes(plan.required_bytes()),
                            base::human_bytes(plan.free_bytes), plan.advice)));
    return std::nullopt;
  }
  add(cell, "plan",
      passed(fmt::format("{} for a context of {} and {} slots",
                         base::human_bytes(plan.need.device_bytes()), plan.need.context,
                         plan.need.slots)));
  return plan;
}

void run_local(const MatrixModel& model, const MatrixWish& wish, const MatrixPlace& place,
               const OnCheck& on_check, const std::stop_token& stop, MatrixCell& cell) {
  on_check("plan", 0, matrix_checks().size() + 2);
  const std::optional<contract::ModelEntry> entry =
      get_model(model, wish, place, on_check, stop, cell);
  if (!entry) return;
  cell.parameters = entry->parameters.value_or(0);
  cell.size_bytes = entry->size_bytes;
  cell.is_random = entry->name.ends_with(" with random weights");
  const std::optional<pool::MemoryPlan> plan = make_plan(*entry, place, cell);
  if (!plan || stop.stop_requested()) return;
  on_check("load", 1, matrix_checks().size() + 2);
  LocalWorkerOptions options;
  options.program = place.programs / contract::find_backend_kind(cell.name.backend)->program;
  options.model = entry->path;
  options.arguments = pool::worker_flags(plan->need);
  const Clock::time_point begun = Clock::now();
  Result<std::unique_ptr<LocalWorker>> worker = LocalWorker::start(options);
  if (!worker.ok()) {
    add(cell, "load", failed(worker.error().message));
    return;
  }
  const Result<std::string> uri = (*worker)->wait_ready([&](std::optional<double>) {
    if (stop.stop_requested()) (*worker)->interrupt();
  });
  if (!uri.ok()) {
    add(cell, "load", failed(uri.error().message));
    return;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  const WorkerModel client(*uri);
  const bool is_builtin = entry->id == contract::kBuiltinModel;
  Subject subject{.client = client,
                  .backend = cell.name.backend,
                  .scale = wish.scale,
                  .stop = stop,
                  .files = is_builtin ? fs::path() : fs::path(entry->path),
                  .program = options.program,
                  .tools = place.programs,
                  .pid = (*worker)->pid(),
                  .planned_bytes = plan->need.device_bytes()};
  if (!make_acquaintance(subject, cell, "load")) return;
  add(cell, "load", passed(fmt::format("{:.2f} s to the first answer that is possible", seconds)));
  run_checks(subject, cell, on_check, [&] { return (*worker)->obituary(); });
}

void run_in_fleet(const MatrixModel& model, const MatrixWish& wish, const MatrixPlace& place,
                  const OnCheck& on_check, const std::stop_token& stop, MatrixCell& cell) {
  on_check("load", 1, matrix_checks().size() + 2);
  Result<FleetClient> client = find_orchestrator(place.fleet);
  if (!client.ok()) {
    add(cell, "load", skipped(client.error().message));
    return;
  }
  const auto hosts = client->get<contract::HostList>("/v2/hosts");
  if (!hosts.ok()) {
    add(cell, "load", failed(hosts.error().message));
    return;
  }
  const auto host = std::find_if(hosts->hosts.begin(), hosts->hosts.end(),
                                 [&](const auto& one) { return one.name == cell.name.host; });
  if (host == hosts->hosts.end() || host->state != "connected") {
    add(cell, "load",
        skipped(host == hosts->hosts.end() ? "the fleet has no such host"
                                           : "the host is " + host->state));
    return;
  }
  const bool wants_gpu = contract::needs_gpu(cell.name.backend);
  if (wants_gpu && host->devices.size() < 2) {
    add(cell, "load", skipped("the host has no GPU"));
    return;
  }
  const Clock::time_point begun = Clock::now();
  const FleetModel asked(client.take(), model.ref, cell.name.host);
  Subject subject{.client = asked, .backend = cell.name.backend, .scale = wish.scale, .stop = stop};
  if (!make_acquaintance(subject, cell, "load")) return;
  if (!subject.facts.device.empty() && !subject.facts.device.starts_with(cell.name.backend)) {
    add(cell, "load",
        skipped(fmt::format("the fleet runs it on {} there, and takes no wish for another",
                            subject.facts.device)));
    return;
  }
  add(cell, "load",
      passed(fmt::format("{:.2f} s to the end of the first answer, fetching included",
                         std::chrono::duration<double>(Clock::now() - begun).count())));
  run_checks(subject, cell, on_check, [] { return std::string(); });
}

}  // namespace

MatrixModel read_matrix_model(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals != std::string::npos && equals > 0)
    return {word.substr(0, equals), word.substr(equals + 1)};
  if (word.find('/') == std::string::npos) return {word, word};
  fs::path path = word;
  if (!path.has_filename()) path = path.parent_path();
  const bool is_file = path.extension() == ".gguf" || path.extension() == ".safetensors" ||
                       path.extension() == ".bin" || path.extension() == ".pt" ||
                       path.extension() == ".pth";
  return {is_file ? path.stem().string() : path.filename().string(), word};
}

std::vector<CellName> cells_of(const MatrixWish& wish) {
  std::vector<CellName> cells;
  for (const std::string& host : wish.hosts)
    for (const MatrixModel& model : wish.models)
      for (const std::string& backend : wish.backends) cells.push_back({model.name, backend, host});
  return cells;
}

MatrixCell run_cell(const MatrixWish& wish, const CellName& name, const MatrixPlace& place,
                    const OnCheck& on_check, const std::stop_token& stop) {
  MatrixCell cell;
  cell.name = name;
  cell.is_quick = wish.is_quick;
  const MatrixModel* model = find_model(wish, name.model);
  if (model == nullptr)
    add(cell, "plan", failed("no such model"));
  else if (name.host == kLocalHost)
    run_local(*model, wish, place, on_check, stop, cell);
  else
    run_in_fleet(*model, wish, place, on_check, stop, cell);
  // Where its files lie is nobody's business who reads the table.
  for (CheckResult& check : cell.checks) {
    replace_all(check.detail, (drawn_folder(place) / "").string(), "");
    if (!wish.tokenizers.empty()) replace_all(check.detail, (wish.tokenizers / "").string(), "");
  }
  if (model != nullptr && model->ref.find('/') != std::string::npos)
    for (CheckResult& check : cell.checks) replace_all(check.detail, model->ref, model->name);
  return cell;
}

}  // namespace llorch::cli
