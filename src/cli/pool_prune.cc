// llorch-pool models prune and adopt: what downloads left behind, and what other programs have.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "catalog/adopt.h"
#include "catalog/leftovers.h"
#include "cli/leftovers_note.h"
#include "cli/output.h"
#include "cli/pool_command.h"
#include "cli/pool_tables.h"
#include "pool/pool_manager.h"
#include "pool/workers.h"

namespace llorch::cli {
namespace {

using base::TextTable;

constexpr const char* kPruneFooter = R"(Examples:
  llorch-pool models prune --dry-run
  llorch-pool models prune --yes

Lists downloads that were cut off, old revisions, archives and parts of files, and removes
them once you say so. Never what the catalog names, what a download is at, or what a worker
runs; an unfinished download that is removed begins from nothing the next time.)";

constexpr const char* kAdoptFooter = R"(Examples:
  llorch-pool models adopt --dry-run
  llorch-pool models adopt --from ollama
  llorch-pool models adopt --from ~/.lmstudio/models

Registers models that Ollama (OLLAMA_MODELS, ~/.ollama/models) and Hugging Face's tools
(HF_HUB_CACHE, HF_HOME, ~/.cache/huggingface) have fetched, or any folder's GGUF files and
Hugging Face folders, where they lie: nothing is copied, changed or ever deleted there. The
hashes that the caches know are kept, so that `models verify` checks them. With a manager
its user's caches on its host are meant.)";

struct Arguments {
  bool dry_run = false;
  bool yes = false;
  std::string from;
};

std::int64_t bytes_of(const json::Object& object) {
  const json::Value* value = object.if_contains("bytes");
  return value != nullptr && value->is_int64() ? value->get_int64() : 0;
}

const json::Array& list_of(const json::Object& object, std::string_view field) {
  static const json::Array none;
  const json::Value* value = object.if_contains(field);
  return value != nullptr && value->is_array() ? value->get_array() : none;
}

json::Object leftovers_json(const std::vector<catalog::Leftover>& leftovers) {
  json::Array list;
  for (const catalog::Leftover& one : leftovers) list.emplace_back(contract::write_fields(one));
  return {{"leftovers", std::move(list)}, {"bytes", catalog::total_bytes(leftovers)}};
}

// Through the manager that is named or runs, else in this process.
class Store {
 public:
  static Result<Store> open(const PoolContext& context) {
    Result<PoolClient> client = find_pool(target_of(context));
    if (!client.ok() && !context.pool_url.empty()) return client.error();
    Store store(context);
    if (client.ok()) store.client_ = std::make_unique<PoolClient>(client.take());
    return store;
  }

  Result<json::Object> leftovers() {
    if (client_ != nullptr) return object_of(client_->get("/v2/leftovers"));
    return of_list(catalog::find_leftovers(context_.home, models_in_use()));
  }
  Result<json::Object> remove_leftovers() {
    if (client_ != nullptr) return object_of(client_->remove("/v2/leftovers"));
    return of_list(catalog::remove_leftovers(context_.home, models_in_use()));
  }
  Result<json::Object> adopt(const catalog::AdoptRequest& request) {
    if (client_ != nullptr) {
      json::Object body{{"dry_run", request.dry_run}};
      if (!request.from.empty()) body["from"] = request.from;
      return object_of(client_->post("/v2/models/adopt", body));
    }
    const Result<catalog::AdoptReport> report =
        catalog::adopt_models(context_.home, context_.environment, request);
    if (!report.ok()) return report.error();
    return contract::write_fields(*report);
  }

 private:
  explicit Store(const PoolContext& context) : context_(context) {}

  std::vector<std::string> models_in_use() const {
    return pool::running_models(pool::read_worker_records(context_.home));
  }
  static Result<json::Object> object_of(Result<json::Value> answer) {
    if (!answer.ok()) return answer.error();
    if (answer->is_object()) return std::move(answer->get_object());
    return Error{ErrorCode::Internal, "the pool manager's answer is no object"};
  }
  static Result<json::Object> of_list(const Result<std::vector<catalog::Leftover>>& leftovers) {
    if (!leftovers.ok()) return leftovers.error();
    return leftovers_json(*leftovers);
  }

  const PoolContext& context_;
  std::unique_ptr<PoolClient> client_;  // null: nobody runs
};

std::string leftovers_table(const json::Object& found, bool color) {
  using enum TextTable::Align;
  TextTable table({Left, Left, Right, Left});
  table.add_row({"WHAT", "MODEL", "SIZE", "PATH"}, base::Color::Bold);
  for (const json::Value& value : list_of(found, "leftovers")) {
    const json::Object* one = value.if_object();
    if (one == nullptr) continue;
    std::string kind = text_in(*one, "kind");
    std::replace(kind.begin(), kind.end(), '_', ' ');
    table.add_row(
        {kind, text_in(*one, "model"), base::human_bytes(bytes_of(*one)), text_in(*one, "path")});
  }
  return table.render(0, color);
}

bool is_confirmed() {
  write_err("Remove them? [y/N] ");
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

int prune(const PoolContext& context, const Arguments& arguments) {
  Result<Store> store = Store::open(context);
  if (!store.ok()) return fail(store.error());
  const Result<json::Object> found = store->leftovers();
  if (!found.ok()) return fail(found.error());
  const bool is_empty = list_of(*found, "leftovers").empty();
  if (context.json_output && (arguments.dry_run || is_empty)) return print_json(*found);
  if (is_empty) return print("nothing is left over\n");
  if (!context.json_output) {
    if (!write_out(leftovers_table(*found, context.color) +
                   fmt::format("{} together\n", base::human_bytes(bytes_of(*found)))))
      return kFailure;
  }
  if (arguments.dry_run) return 0;
  if (!arguments.yes) {
    if (::isatty(STDIN_FILENO) == 0 || context.json_output) {
      complain("nothing was removed: say --yes, or --dry-run to look only");
      return kUsage;
    }
    if (!is_confirmed()) return kFailure;
  }
  const Result<json::Object> removed = store->remove_leftovers();
  if (!removed.ok()) return fail(removed.error());
  if (context.json_output) return print_json(*removed);
  return print(fmt::format("{} removed\n", base::human_bytes(bytes_of(*removed))));
}

std::string adopt_table(const json::Object& report, bool color) {
  using enum TextTable::Align;
  TextTable table({Left, Left, Left, Right, Left});
  table.add_row({"ID", "FROM", "NAME", "SIZE", ""}, base::Color::Bold);
  for (const char* list : {"adopted", "skipped"}) {
    for (const json::Value& value : list_of(report, list)) {
      const json::Object* one = value.if_object();
      if (one == nullptr) continue;
      table.add_row({text_in(*one, "id"), text_in(*one, "from"), text_in(*one, "name"),
                     base::human_bytes(bytes_of(*one)), text_in(*one, "problem")});
    }
  }
  return table.render(0, color);
}

int adopt(const PoolContext& context, const Arguments& arguments) {
  Result<Store> store = Store::open(context);
  if (!store.ok()) return fail(store.error());
  const Result<json::Object> report =
      store->adopt({.from = arguments.from, .dry_run = arguments.dry_run});
  if (!report.ok()) return fail(report.error());
  if (context.json_output) return print_json(*report);
  const std::size_t taken = list_of(*report, "adopted").size();
  if (taken + list_of(*report, "skipped").size() == 0)
    return print("no models found; --from PATH looks elsewhere\n");
  return print(adopt_table(*report, context.color) +
               fmt::format("{} {}\n", taken,
                           arguments.dry_run ? "would be registered where they lie"
                                             : "registered where they lie"));
}

}  // namespace

std::string leftovers_note(const PoolContext& context) {
  Result<Store> store = Store::open(context);
  if (!store.ok()) return {};
  const Result<json::Object> found = store->leftovers();
  if (!found.ok() || list_of(*found, "leftovers").empty()) return {};
  return fmt::format(
      "{} left over by downloads: `llorch-pool models prune` lists and removes them\n",
      base::human_bytes(bytes_of(*found)));
}

void add_prune_commands(CLI::App& parent, PoolContext& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* prune_command =
      parent.add_subcommand("prune", "list and remove what downloads left behind");
  prune_command->add_flag("--dry-run", arguments->dry_run, "list only");
  prune_command->add_flag("-y,--yes", arguments->yes, "do not ask");
  prune_command->footer(kPruneFooter);
  run_when_named(*prune_command, context,
                 [&context, arguments] { return prune(context, *arguments); });
  CLI::App* adopt_command =
      parent.add_subcommand("adopt", "register what other programs have fetched, where it lies");
  adopt_command
      ->add_option("--from", arguments->from, "ollama, huggingface or a folder (both caches)")
      ->type_name("PLACE");
  adopt_command->add_flag("--dry-run", arguments->dry_run, "list only");
  adopt_command->footer(kAdoptFooter);
  adopt_command->callback([&context, arguments] {
    if (!arguments->from.empty() && arguments->from != "ollama" &&
        arguments->from != "huggingface") {
      std::error_code error;
      const auto whole = std::filesystem::absolute(arguments->from, error);
      if (!error) arguments->from = whole.lexically_normal().string();
    }
    context.chosen = [&context, arguments] { return adopt(context, *arguments); };
  });
}

}  // namespace llorch::cli
