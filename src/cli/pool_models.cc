// llorch-pool models register, unregister, update, list, catalog, show, rm.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/terminal.h"
#include "catalog/describe.h"
#include "catalog/registry.h"
#include "cli/leftovers_note.h"
#include "cli/model_store.h"
#include "cli/output.h"
#include "cli/pool_command.h"

namespace llorch::cli {
namespace {

using base::Color;
using base::TextTable;
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
  changed         a file was replaced since: `models update ID --downloaded true`
  missing         a file is gone
  unsupported     here, but no worker runs it: `models show ID` says why)";

constexpr const char* kCatalogFooter = R"(Examples:
  llorch-pool models catalog
  llorch-pool models download tinyllama

Every model that this pool knows, here or not, and below it names that can be
fetched. Sizes of those are the publishers'. --json: models, known.)";

constexpr const char* kShowFooter = R"(Examples:
  llorch-pool models show builtin
  llorch-pool models show mine --json)";

constexpr const char* kRmFooter = R"(Examples:
  llorch-pool models rm tinyllama

Forgets the model and deletes what was downloaded for it. Files that were registered
in place stay. Refused while a worker runs the model.)";

// A mistake of the user's is one of usage, also where only the catalog could see it.
int refuse(const Error& error) {
  fail(error);
  return error.code == ErrorCode::InvalidArgument ? kUsage : kFailure;
}

// The same where files were read: one that is damaged, or no file at all, is a failure; only what
// was said about it can be a mistake.
int refuse(const Error& error, const std::string& path) {
  ModelEntry read;
  const bool is_of_files = !path.empty() && error.code == ErrorCode::InvalidArgument &&
                           !catalog::describe_files(path, read).ok();
  const int code = refuse(error);
  return is_of_files ? kFailure : code;
}

Color color_of(std::string_view state) {
  if (state == "missing" || state == "damaged") return Color::Red;
  if (state == "changed" || state == "unsupported") return Color::Yellow;
  return state == "not_downloaded" ? Color::Dim : Color::None;
}

json::Object entry_json(const ListedModel& model) {
  json::Object object = contract::to_json(model.entry);
  object["state"] = model.state;
  return object;
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

// After a change: the model as it is now, with its state. `path`: of the files that were read, or
// empty.
int print_changed(const PoolContext& context, ModelStore& store, std::string_view verb,
                  const std::string& path, const Result<ModelEntry>& entry) {
  if (!entry.ok()) {
    // What a manager refuses was understood: that is no mistake on the command line.
    return store.client() != nullptr ? fail(entry.error()) : refuse(entry.error(), path);
  }
  if (!context.json_output) return print(fmt::format("{} {}", verb, summary_line(*entry)));
  const Result<ListedModel> listed = store.find(entry->id);
  return listed.ok() ? print_json(entry_json(*listed)) : refuse(listed.error());
}

int register_model(const PoolContext& context, const catalog::RegisterRequest& request) {
  Result<ModelStore> store = ModelStore::open(context);
  if (!store.ok()) return refuse(store.error());
  return print_changed(context, *store, "registered", request.path, store->add(request));
}

int update_model(const PoolContext& context, const std::string& id,
                 const catalog::UpdateRequest& request) {
  Result<ModelStore> store = ModelStore::open(context);
  if (!store.ok()) return refuse(store.error());
  std::string path = request.path.value_or("");
  if (path.empty() && store->client() == nullptr) {
    if (const Result<ListedModel> before = store->find(id); before.ok()) path = before->entry.path;
  }
  return print_changed(context, *store, "updated", path, store->update(id, request));
}

int remove_model(const PoolContext& context, const std::string& id, bool files) {
  Result<ModelStore> store = ModelStore::open(context);
  if (!store.ok()) return refuse(store.error());
  const Result<RemovedModel> removed = store->remove(id, files);
  if (!removed.ok()) return refuse(removed.error());
  if (context.json_output) {
    return print_json(json::Object{{"id", id},
                                   {"files_deleted", removed->files_deleted},
                                   {"files_kept_at", removed->files_kept_at}});
  }
  const std::string kept =
      removed->files_kept_at.empty()
          ? ""
          : fmt::format("; its files stay at {}", base::printable(removed->files_kept_at));
  return print(fmt::format("{} {}{}\n", removed->files_deleted ? "removed" : "forgot", id, kept));
}

// Entry by entry: one value of all of them would take longer to build than to print.
std::string models_text(const std::vector<const ListedModel*>& models) {
  std::string text = "\"models\":[";
  for (const ListedModel* model : models) {
    if (model != models.front()) text += ',';
    text += json::serialize(entry_json(*model));
  }
  return text + "]";
}

std::string models_table(const std::vector<const ListedModel*>& models, bool color) {
  using enum TextTable::Align;
  TextTable table({Left, Left, Left, Left, Right, Right, Left});
  table.add_row({"ID", "NAME", "ARCHITECTURE", "TYPE", "SIZE", "CONTEXT", "STATE"}, Color::Bold);
  for (const ListedModel* model : models) {
    const ModelEntry& entry = model->entry;
    table.add_row(
        {entry.id, or_dash(entry.name), or_dash(entry.architecture), or_dash(entry.quantization),
         size_text(entry.size_bytes), number_text(entry.context_length), model->state},
        color_of(model->state));
  }
  return table.render(0, color, fold_width());
}

std::string known_table(const std::vector<ModelEntry>& known, bool color) {
  using enum TextTable::Align;
  TextTable table({Left, Left, Left, Right, Left, Left, Left});
  table.add_row({"ID", "NAME", "TYPE", "SIZE", "LICENCE", "BACKENDS", "REPO"}, Color::Bold);
  for (const ModelEntry& entry : known) {
    // Which file of the repository it is says the type.
    table.add_row({entry.id, entry.name, entry.quantization, size_text(entry.size_bytes),
                   entry.license, backends_text(entry),
                   entry.repo.substr(0, entry.repo.find("::"))});
  }
  return table.render(0, color, fold_width());
}

// Models that are here: `list`. Everything registered, and below it what can be fetched by name:
// `catalog`.
int list_models(const PoolContext& context, bool is_catalog) {
  Result<ModelStore> store = ModelStore::open(context);
  if (!store.ok()) return refuse(store.error());
  const Result<ModelListing> listing = store->list();
  if (!listing.ok()) return refuse(listing.error());
  std::vector<const ListedModel*> models;
  std::size_t not_here = 0;
  for (const ListedModel& model : listing->models) {
    if (is_catalog || model.state != "not_downloaded")
      models.push_back(&model);
    else
      ++not_here;
  }
  if (context.json_output) {
    std::string known;
    if (is_catalog) {
      json::Array array;
      for (const ModelEntry& entry : listing->known) array.emplace_back(contract::to_json(entry));
      known = ",\"known\":" + json::serialize(array);
    }
    return print(fmt::format("{{\"pool_id\":{},{}{}}}\n",
                             json::serialize(json::Value(listing->pool_id)), models_text(models),
                             known));
  }
  std::string text = models_table(models, context.color);
  if (is_catalog && !listing->known.empty())
    text += "\nCan be fetched by name:\n" + known_table(listing->known, context.color);
  if (not_here > 0)
    text +=
        fmt::format("{} more in the catalog, not here: `llorch-pool models catalog`\n", not_here);
  if (store->client() == nullptr && !is_catalog) text += leftovers_note(context);
  return print(text);
}

int show_model(const PoolContext& context, const std::string& id) {
  Result<ModelStore> store = ModelStore::open(context);
  if (!store.ok()) return refuse(store.error());
  const Result<ListedModel> listed = store->find(id);
  if (!listed.ok()) return refuse(listed.error());
  if (context.json_output) return print_json(entry_json(*listed));
  const ModelEntry* entry = &listed->entry;
  using enum TextTable::Align;
  TextTable table({Left, Left});
  const auto add = [&table](std::string_view label, std::string_view value) {
    if (!value.empty()) table.add_row({std::string(label), base::printable(value)});
  };
  add("id", entry->id);
  add("name", entry->name);
  add("state", listed->state);
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
  add_command(parent, "list", "the models that are here", kListFooter).callback([&context] {
    context.chosen = [&context] { return list_models(context, false); };
  });
  add_command(parent, "catalog", "this pool's catalog, and what can be fetched by name",
              kCatalogFooter)
      .callback([&context] { context.chosen = [&context] { return list_models(context, true); }; });
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
