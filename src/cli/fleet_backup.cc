// llorch backup and restore: the orchestrator's store (jobs, keys, hosts, what was learnt) as one
// file.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "base/file.h"
#include "base/terminal.h"
#include "cli/fleet_command.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBackupFooter = R"(Examples:
  llorch backup fleet.db
  llorch backup /backup/fleet-$(date +%F).db

A whole copy of what the orchestrator keeps: jobs, keys, hosts and what it learnt about
speeds. Work goes on meanwhile. The file holds hashes of keys and prompts of jobs that
have not been forgotten yet: it is for you alone (0600). `llorch restore` takes it back.)";

constexpr const char* kRestoreFooter = R"(Examples:
  llorch down && llorch restore fleet.db && llorch up

The orchestrator must not run. What was there before is kept beside it, under the name
that is printed. Jobs that had not ended in the copy begin again.)";

constexpr std::string_view kMagic("SQLite format 3\0", 16);

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

Status check_copy(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    return Error{ErrorCode::NotFound,
                 fmt::format("{} cannot be read; `llorch backup FILE` writes one", file.string())};
  }
  std::array<char, kMagic.size()> head{};
  in.read(head.data(), head.size());
  if (std::string_view(head.data(), head.size()) == kMagic) return ok_status();
  return Error{ErrorCode::Corrupt,
               fmt::format("{} is no copy that `llorch backup` wrote", file.string())};
}

// Puts the copy in place; where the old store went, empty: there was none.
Result<fs::path> put_in_place(const fs::path& copy, const fs::path& store) {
  if (Status made = base::make_private_folder(store.parent_path()); !made.ok()) return made.error();
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const fs::path fresh = store.string() + ".new";
  std::error_code error;
  fs::copy_file(copy, fresh, fs::copy_options::overwrite_existing, error);
  if (error)
    return Error{ErrorCode::Internal, fmt::format("{}: {}", fresh.string(), error.message())};
  base::make_private(fresh);
  fs::path old;
  if (fs::exists(store, error)) {
    old = fmt::format("{}.before-{}", store.string(), now.count());
    for (const char* part : {"", "-wal", "-shm"}) {
      if (!fs::exists(store.string() + part, error)) continue;
      fs::rename(store.string() + part, old.string() + part, error);
      if (error)
        return Error{ErrorCode::Internal, fmt::format("{}: {}", store.string(), error.message())};
    }
  }
  fs::rename(fresh, store, error);
  if (error)
    return Error{ErrorCode::Internal, fmt::format("{}: {}", store.string(), error.message())};
  return old;
}

int restore(const FleetContext& context, const std::string& file) {
  if (read_orchestrator_address(context.home)) {
    return fail({ErrorCode::Conflict,
                 "the orchestrator runs and would not notice; stop it first: `llorch down`"});
  }
  if (Status good = check_copy(file); !good.ok()) return fail(good.error());
  const Result<fs::path> old = put_in_place(file, store_file(context.home));
  if (!old.ok()) return fail(old.error());
  if (context.json_output)
    return print_json(
        json::Object{{"store", store_file(context.home).string()}, {"before", old->string()}});
  std::string text = "restored; `llorch up` goes on from there\n";
  if (!old->empty()) text += fmt::format("what was there before: {}\n", old->string());
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
