// llorch backup and restore: the orchestrator's store (jobs, keys, hosts, what was learnt) as one
// file.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "audit/audit_log.h"
#include "base/file.h"
#include "base/terminal.h"
#include "cli/fleet_command.h"
#include "cli/output.h"
#include "job_store/sqlite_store.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBackupFooter = R"(Examples:
  llorch backup fleet.db
  llorch backup /backup/fleet-$(date +%F).db

A whole copy of what the orchestrator keeps: jobs, keys, hosts and what it learnt about
speeds. Work goes on meanwhile. The file holds hashes of keys and prompts of jobs that
have not been forgotten yet: it is for you alone (0600). `llorch restore` takes it back.
Its SHA-256 stands behind its contents: a copy that was damaged since is refused.)";

constexpr const char* kRestoreFooter = R"(Examples:
  llorch down && llorch restore fleet.db && llorch up

The orchestrator must not run. What was there before is kept beside it, under the name
that is printed. Jobs that had not ended in the copy begin again.)";

fs::path store_file(const base::Home& home) {
  return home.data / "llorch.db";
}

int backup(const FleetContext& context, const std::string& name) {
  std::error_code error;
  const fs::path file = fs::absolute(name, error);
  if (fs::exists(file, error))
    return fail({ErrorCode::Conflict, fmt::format("{} is there already", file.string())});
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  const Result<json::Value> done = client->calls().post(
      "/v2/backup", json::Object{{"file", file.string()}}, {.total = std::chrono::minutes(10)});
  if (!done.ok()) return fail(done.error());
  base::make_private(file);
  if (context.json_output) return print_json(*done);
  const std::uintmax_t bytes = fs::file_size(file, error);
  return print(fmt::format("{} written, {}\n", base::printable(file.string()),
                           base::human_bytes(error ? 0 : static_cast<std::int64_t>(bytes))));
}

// The audit log is the home's, not the store's: it goes on where it was, and the store that was put
// in place learns how far that is.
Status note_restore(const fs::path& store, const std::optional<audit::Anchor>& anchor,
                    const std::string& file) {
  job_store::SqliteOptions options;
  options.file = store;
  const Result<std::unique_ptr<job_store::Store>> opened =
      job_store::open_sqlite_store(options, [](const job_store::Written&) {});
  if (!opened.ok()) return opened.error();
  audit::LogOptions log;
  log.folder = store.parent_path();
  log.anchor = anchor;
  log.keep_anchor = [&store = **opened](const audit::Anchor& known) -> Status {
    const auto kept =
        store.put(fleet::Bucket::Audit, audit::kAnchorKey, audit::to_text(known), std::nullopt);
    return kept.ok() ? ok_status() : Status(kept.error());
  };
  const Result<std::unique_ptr<audit::AuditLog>> audit = audit::AuditLog::open(std::move(log));
  if (!audit.ok()) return audit.error();
  return (*audit)->append(
      {.actor = "local", .action = "store.restore", .object = fs::path(file).filename().string()});
}

std::optional<audit::Anchor> read_anchor(const fs::path& store) {
  const auto known = job_store::read_entry(store, fleet::Bucket::Audit, audit::kAnchorKey);
  return known.ok() && *known ? audit::anchor_from_text(**known) : std::nullopt;
}

int restore(const FleetContext& context, const std::string& file) {
  if (read_orchestrator_address(context.home)) {
    return fail({ErrorCode::Conflict,
                 "the orchestrator runs and would not notice; stop it first: `llorch down`"});
  }
  const fs::path store = store_file(context.home);
  if (Status made = base::make_private_folder(store.parent_path()); !made.ok())
    return fail(made.error());
  const std::optional<audit::Anchor> anchor = read_anchor(store);
  const Result<job_store::BackupReport> done = job_store::restore_backup(file, store);
  if (!done.ok()) return fail(done.error());
  if (const Status noted = note_restore(store, anchor, file); !noted.ok())
    return fail(noted.error().in("restored, but not in the audit log"));
  if (context.json_output) {
    return print_json(json::Object{{"store", store.string()},
                                   {"jobs", done->num_jobs},
                                   {"open_jobs", done->num_open_jobs},
                                   {"checked", done->is_sealed},
                                   {"before", done->kept.string()}});
  }
  std::string text =
      fmt::format("restored, {} jobs, {} of them not ended; `llorch up` goes on from there\n",
                  done->num_jobs, done->num_open_jobs);
  if (!done->kept.empty())
    text += fmt::format("what was there before: {}\n", base::printable(done->kept.string()));
  if (!done->is_sealed) {
    text +=
        "this copy is from before copies had a checksum: damage inside a text or a number of it "
        "would go unnoticed; `llorch backup` now makes one that has it\n";
  }
  return print(text);
}

}  // namespace

void add_backup_commands(CLI::App& app, FleetContext& context) {
  auto name = std::make_shared<std::string>();
  add_fleet_command(app, context, "backup", "a copy of what the orchestrator keeps", kBackupFooter,
                    [&context, name] { return backup(context, *name); })
      ->add_option("FILE", *name, "a file that is not there yet")
      ->required();
  auto file = std::make_shared<std::string>();
  add_fleet_command(app, context, "restore", "put such a copy in place", kRestoreFooter,
                    [&context, file] { return restore(context, *file); })
      ->add_option("FILE", *file, "that `llorch backup` wrote")
      ->required();
}

}  // namespace llorch::cli
