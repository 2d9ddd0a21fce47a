// llorch-pool plan: does a model fit, where, and with what. Asks the manager that is named or runs,
// else the worker program itself.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/own_program.h"
#include "base/terminal.h"
#include "catalog/describe.h"
#include "catalog/model_catalog.h"
#include "cli/model_store.h"
#include "cli/output.h"
#include "cli/pool_command.h"
#include "contract/backend_kind.h"
#include "pool/devices.h"
#include "pool/memory_plan.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;
using base::Color;
using base::TextTable;
using pool::MemoryPlan;

constexpr const char* kFooter = R"(Examples:
  llorch-pool plan tinyllama
  llorch-pool plan llama3.2-1b --ctx 32768 --slots 4 --kv q8_0
  llorch-pool plan ~/models/my-model.gguf --backend cuda --gpu 0

The worker program itself says what it would take; nothing is loaded. Without --ctx
and --slots the largest that fit are shown. A load that was measured before counts in
place of its plan. The margin stays free beside the worker.

Exit code: 0 when it fits somewhere, 1 when it fits nowhere, 2 for a mistake on the
command line.)";

struct Options {
  std::string model;
  std::optional<std::int32_t> context;
  std::optional<std::int32_t> slots;
  std::string kv;
  std::string backend;  // empty: every one that is here
  std::optional<std::int32_t> gpu;
};

// A model of the catalog, or files that are not in it.
Result<contract::ModelEntry> find_model(const PoolContext& context, const std::string& text) {
  const catalog::ModelCatalog models(context.home.catalog_file());
  Result<contract::ModelEntry> entry = models.find(text);
  std::error_code ignored;
  if (entry.ok() || !fs::exists(text, ignored)) return entry;
  contract::ModelEntry described;
  described.id = fs::path(text).filename().string();
  if (Status read = catalog::describe_files(text, described); !read.ok()) return read.error();
  return described;
}

pool::Planner make_planner(const PoolContext& context) {
  const fs::path programs = base::own_folder();
  return {.worker_cpu = programs / contract::find_backend_kind(contract::kCpu)->program,
          .worker_cuda = programs / contract::find_backend_kind(contract::kCuda)->program,
          .measurements_file = context.home.state / "measurements.json",
          .home = context.home,
          .environment = context.environment};
}

// Plans for every backend that is asked about; without a wish, for those that this host has and
// the model runs on.
Result<std::vector<MemoryPlan>> make_plans(const Options& options, const PoolContext& context,
                                           const contract::ModelEntry& model) {
  const pool::Planner planner = make_planner(context);
  const contract::HostInfo host = pool::Devices().read(context.home.models());
  pool::PlanRequest request{.backend = options.backend,
                            .gpu = options.gpu,
                            .context = options.context,
                            .slots = options.slots,
                            .kv_type = options.kv};
  if (!request.backend.empty()) return planner.plan(model, request, host);
  std::vector<MemoryPlan> plans;
  for (const contract::BackendKind& kind : contract::kBackendKinds) {
    std::error_code ignored;
    const bool is_here =
        !host.gpus.empty() && fs::exists(planner.program(kind), ignored) &&
        std::find(model.backends.begin(), model.backends.end(), kind.name) != model.backends.end();
    if (kind.needs_gpu && !is_here) continue;
    request.backend = kind.name;
    Result<std::vector<MemoryPlan>> more = planner.plan(model, request, host);
    if (!more.ok()) return more;
    for (MemoryPlan& plan : *more) plans.push_back(std::move(plan));
  }
  return plans;
}

Result<MemoryPlan> read_plan(const json::Value& value) {
  const json::Object* object = value.if_object();
  const json::Value* need = object != nullptr ? object->if_contains("need") : nullptr;
  if (need == nullptr) return Error{ErrorCode::Internal, "the pool manager's plan has no need"};
  Result<contract::MemoryNeed> parsed = contract::parse_memory_need(*need);
  if (!parsed.ok()) return parsed.error();
  json::FieldReader reader(*object);
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  MemoryPlan plan;
  plan.need = parsed.take();
  plan.device = reader.required_string("device");
  plan.measured_bytes = reader.optional_integer("measured_bytes", 0, kMax);
  plan.margin_bytes = reader.optional_integer("margin_bytes", 0, kMax).value_or(0);
  plan.free_bytes = reader.optional_integer("free_bytes", 0, kMax).value_or(0);
  plan.total_bytes = reader.optional_integer("total_bytes", 0, kMax).value_or(0);
  plan.fits = reader.required_bool("fits");
  plan.advice = reader.optional_string("advice").value_or("");
  return plan;
}

Result<std::vector<MemoryPlan>> ask_plans(const Options& options, PoolClient& client,
                                          const std::string& id) {
  std::string query;
  const auto add = [&query](std::string_view name, const std::string& value) {
    if (!value.empty()) query += fmt::format("{}{}={}", query.empty() ? "?" : "&", name, value);
  };
  const auto number = [](const std::optional<std::int32_t>& value) {
    return value ? std::to_string(*value) : std::string();
  };
  add("backend", options.backend);
  add("gpu", number(options.gpu));
  add("ctx", number(options.context));
  add("slots", number(options.slots));
  add("kv", options.kv);
  const Result<json::Value> answer = client.get(model_path(id, "/plan" + query));
  if (!answer.ok()) return answer.error();
  const json::Object* object = answer->if_object();
  const json::Value* list = object != nullptr ? object->if_contains("plans") : nullptr;
  if (list == nullptr || !list->is_array())
    return Error{ErrorCode::Internal, "the pool manager's answer has no plans"};
  std::vector<MemoryPlan> plans;
  for (const json::Value& value : list->get_array()) {
    Result<MemoryPlan> plan = read_plan(value);
    if (!plan.ok()) return plan.error();
    plans.push_back(plan.take());
  }
  return plans;
}

// Of a model of the pool; files that are not in its catalog are planned here, unless a pool is
// named.
Result<std::vector<MemoryPlan>> find_plans(const Options& options, const PoolContext& context,
                                           contract::ModelEntry& model) {
  Result<ModelStore> store = ModelStore::open(context);
  if (!store.ok()) return store.error();
  if (PoolClient* client = store->client()) {
    Result<ListedModel> listed = store->find(options.model);
    if (listed.ok()) {
      model = std::move(listed->entry);
      return ask_plans(options, *client, model.id);
    }
    if (listed.error().code != ErrorCode::NotFound || !context.pool_url.empty())
      return listed.error();
  }
  Result<contract::ModelEntry> found = find_model(context, options.model);
  if (!found.ok()) return found.error();
  model = found.take();
  return make_plans(options, context, model);
}

std::string table_text(const std::vector<MemoryPlan>& plans, bool color) {
  std::vector<TextTable::Align> columns(plans.size() + 1, TextTable::Align::Right);
  columns[0] = TextTable::Align::Left;
  TextTable table(std::move(columns));
  const auto add = [&](std::string_view label, Color paint, const auto& cell) {
    std::vector<std::string> cells = {std::string(label)};
    for (const MemoryPlan& plan : plans) cells.push_back(cell(plan));
    table.add_row(std::move(cells), paint);
  };
  const auto add_bytes = [&](std::string_view label, Color paint, const auto& bytes) {
    add(label, paint, [&](const MemoryPlan& plan) { return base::human_bytes(bytes(plan)); });
  };
  using Plan = const MemoryPlan&;
  add("", Color::Bold, [](Plan plan) { return plan.device; });
  add("context", Color::None, [](Plan plan) { return std::to_string(plan.need.context); });
  add("slots", Color::None, [](Plan plan) { return std::to_string(plan.need.slots); });
  add("cache", Color::None, [](Plan plan) { return plan.need.kv_type; });
  add_bytes("weights", Color::None, [](Plan plan) { return plan.need.weights_bytes; });
  add_bytes("keys and values", Color::None, [](Plan plan) { return plan.need.kv_bytes; });
  add_bytes("scratch", Color::None, [](Plan plan) { return plan.need.scratch_bytes; });
  add_bytes("runtime", Color::None, [](Plan plan) { return plan.need.runtime_bytes; });
  add_bytes("planned", Color::Bold, [](Plan plan) { return plan.need.device_bytes(); });
  const auto is_measured = [](Plan plan) { return plan.measured_bytes.has_value(); };
  if (std::any_of(plans.begin(), plans.end(), is_measured)) {
    add("measured", Color::Bold, [](Plan plan) {
      return plan.measured_bytes ? base::human_bytes(*plan.measured_bytes) : std::string("-");
    });
  }
  add_bytes("margin", Color::None, [](Plan plan) { return plan.margin_bytes; });
  add_bytes("free", Color::None, [](Plan plan) { return plan.free_bytes; });
  if (std::any_of(plans.begin(), plans.end(), [](Plan plan) { return plan.need.host_bytes > 0; })) {
    add_bytes("host memory", Color::None, [](Plan plan) { return plan.need.host_bytes; });
  }
  return table.render(0, color);
}

std::string verdict_text(const MemoryPlan& plan, bool color) {
  const std::string verdict = base::paint(plan.fits ? "fits" : "does not fit",
                                          plan.fits ? Color::Green : Color::Red, color);
  if (plan.fits) return fmt::format("{}: {}\n", plan.device, verdict);
  return fmt::format("{}: {}; {}\n", plan.device, verdict, plan.advice);
}

int run_plan(const Options& options, const PoolContext& context) {
  contract::ModelEntry model;
  const Result<std::vector<MemoryPlan>> plans = find_plans(options, context, model);
  if (!plans.ok()) return fail(plans.error());
  const bool fits =
      std::any_of(plans->begin(), plans->end(), [](const MemoryPlan& plan) { return plan.fits; });
  std::string text;
  if (context.json_output) {
    json::Array list;
    for (const MemoryPlan& plan : *plans) list.push_back(contract::write_fields(plan));
    text = json::serialize(json::Object{{"model", model.id},
                                        {"path", model.path},
                                        {"fits", fits},
                                        {"plans", std::move(list)}}) +
           "\n";
  } else {
    text = table_text(*plans, context.color) + "\n";
    for (const MemoryPlan& plan : *plans) text += verdict_text(plan, context.color);
  }
  if (!write_out(text)) {
    complain("cannot write to standard output");
    return kFailure;
  }
  return fits ? 0 : kFailure;
}

}  // namespace

void add_plan_command(CLI::App& app, PoolContext& context) {
  CLI::App* command = app.add_subcommand("plan", "what a model would take, and whether it fits");
  command->footer(kFooter);
  const auto options = std::make_shared<Options>();
  command->add_option("MODEL", options->model, "a model of the catalog, or a path to its files")
      ->required();
  command->add_option("--ctx", options->context, "context in tokens")
      ->check(CLI::Range(1, 16'777'216));
  command->add_option("--slots", options->slots, "sequences at once")->check(CLI::Range(1, 256));
  command->add_option("--kv", options->kv, "type of the key/value cache: f16 (default) or q8_0")
      ->check(CLI::IsMember({"f16", "q8_0"}));
  CLI::Option* backend =
      command->add_option("--backend", options->backend, "cpu or cuda; default: what is here")
          ->check(CLI::IsMember(contract::backend_names()));
  command->add_option("--gpu", options->gpu, "number of the GPU; needs --backend cuda")
      ->check(CLI::Range(0, 255))
      ->needs(backend);
  command->callback([options, &context] {
    if (options->gpu && !contract::needs_gpu(options->backend))
      throw CLI::ValidationError("--gpu", "needs --backend cuda");
    context.chosen = [options, &context] { return run_plan(*options, context); };
  });
}

}  // namespace llorch::cli
