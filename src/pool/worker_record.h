// What is on disk about a worker, in three files with one writer each: the record (the manager),
// and what the keeper notes when the worker runs and when it has ended.
//   <id>.json       WorkerRecord: written before the keeper may run, and when a fact changes
//   <id>.run.json   RunNote: the worker's process
//   <id>.exit.json  ExitNote: how it ended
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/confinement.h"
#include "base/home.h"
#include "base/process_table.h"
#include "base/result.h"
#include "contract/pool_info.h"

namespace llorch::pool {

// What a keeper does on a signal: SIGTERM, SIGINT and SIGHUP it passes on as SIGTERM; this one
// makes it kill its worker.
inline constexpr int kKillOrder = SIGUSR1;
// In front of the keeper's own lines in the worker's log.
inline constexpr std::string_view kKeeperPrefix = "[keeper] ";

// Everything a keeper needs to know, so that it asks nobody.
struct LaunchPlan {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // "NAME=value"
  std::filesystem::path log_file;
  std::int64_t log_bytes_max = 0;
  std::filesystem::path lock_file;  // held by the manager for as long as there is one
  std::chrono::milliseconds orphan_patience{0};
  std::chrono::milliseconds term_patience{0};
  std::optional<base::ConfinementRules> confinement;
  // Where the kernel counts the processes it killed for their memory: a line "oom_kill N".
  std::filesystem::path oom_counter = "/proc/vmstat";

  friend bool operator==(const LaunchPlan&, const LaunchPlan&) = default;
};

struct WorkerRecord {
  // As last written. A category without ended_at: it is being ended for that reason.
  contract::PoolWorker worker;
  contract::StartWorkerRequest request;
  // Drawn for each start; in the environment of all its processes, and a secret: the worker proves
  // itself with it.
  std::string mark;
  base::ProcessIdentity keeper;
  std::uint16_t port = 0;
  std::int32_t port_tries = 0;   // starts that ended because the port was taken
  std::int64_t model_bytes = 0;  // its deadline follows them
  LaunchPlan launch;

  friend bool operator==(const WorkerRecord&, const WorkerRecord&) = default;
};

struct RunNote {
  std::string mark;
  base::ProcessIdentity process;
  std::string confinement;  // in words
};

struct ExitNote {
  std::string mark;
  std::int32_t code = 0;
  std::int32_t signal = 0;  // 0: none
  bool oom_kill = false;    // the kernel's counter of processes killed for memory rose
  bool ordered = false;     // the keeper killed it because the manager said so
  bool told = false;        // the keeper passed a SIGTERM on
  bool orphaned = false;    // the keeper ended it because there was no manager
  std::string start_error;  // why the program could not be started; empty: it was
  std::string ended_at;     // RFC 3339, UTC
};

// The environment variable that holds the mark.
std::string mark_variable(std::string_view mark);
std::string make_mark();
// The birth that a mark stands for, as everybody may know it: never 0.
std::uint32_t start_of(std::string_view mark);
std::string now_rfc3339();

std::filesystem::path record_file(const base::Home& home, std::string_view id);
// Beside the record: "<id>.run.json", "<id>.exit.json".
std::filesystem::path run_note_file(const std::filesystem::path& record);
std::filesystem::path exit_note_file(const std::filesystem::path& record);

Status write_record(const std::filesystem::path& file, const WorkerRecord& record);
Status write_note(const std::filesystem::path& record, const RunNote& note);
Status write_note(const std::filesystem::path& record, const ExitNote& note);
// Corrupt when the file breaks the form or is of another version.
Result<WorkerRecord> read_record(const std::filesystem::path& file);
// Nothing when there is none, it cannot be read, or it is another start's.
std::optional<RunNote> read_run_note(const std::filesystem::path& record, std::string_view mark);
std::optional<ExitNote> read_exit_note(const std::filesystem::path& record, std::string_view mark);
void remove_notes(const std::filesystem::path& record);
void remove_record(const std::filesystem::path& record);  // and its notes

// Files of writes that were cut off, and notes without a record. For the holder of the pool's lock.
void remove_stray_notes(const base::Home& home);

// The records of a home, in the order of their names, unread.
std::vector<std::filesystem::path> find_records(const base::Home& home);

}  // namespace llorch::pool
