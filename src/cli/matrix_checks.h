// What is tried in each cell of the matrix: a list of checks, each a function over a client.
// Private to cli/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/nvml.h"
#include "cli/matrix.h"
#include "cli/measure.h"
#include "cli/model_client.h"
#include "contract/model_entry.h"

namespace llorch::cli {

// How much of everything. The defaults are those of a whole run.
struct MatrixScale {
  std::int32_t soak = 1000;          // requests
  std::int64_t prompt_max = 32'768;  // tokens of the longest prompt that is tried
  MeasurePlan speeds{.repeats = 5, .limit = std::chrono::minutes(10)};
};
MatrixScale quick_scale();

// One loaded model. What is empty or 0 is not on this machine, and checks of it are skipped.
struct Subject {
  const ModelClient& client;
  std::string backend;
  ModelFacts facts{};
  MatrixScale scale{};
  std::stop_token stop{};
  std::filesystem::path files{};    // the model's
  std::filesystem::path program{};  // of the worker
  std::filesystem::path tools{};    // the folder of llorch-checkpoints
  int pid = 0;                      // of a worker of our own
  std::int64_t planned_bytes = 0;
  std::filesystem::path root = "/";       // in front of /sys
  std::string nvml = base::kNvmlLibrary;  // for what a GPU counts
  std::int32_t gpu = 0;                   // its place on the bus, as NVML and the pool number them
  // Filled on the way.
  Asked story{};   // a text that the model goes on with for a while: choose_story
  Heard greedy{};  // its answer, that others are held against
  std::vector<std::int32_t> known{};  // ids that stand for text
};

struct Check {
  std::string_view name;
  CheckResult (*run)(Subject& subject, MatrixCell& cell);  // the name is filled in by others
};
// In the order in which they are made. "plan" and "load", which make the subject, come before.
std::span<const Check> matrix_checks();

// Why there are no files to look at.
std::string why_no_files(const Subject& subject);
CheckResult passed(std::string detail);
CheckResult failed(std::string detail);
CheckResult skipped(std::string why);

// Of a few texts the one that the model continues for longest, greedily.
Result<Asked> choose_story(const ModelClient& client, const std::stop_token& stop);

// --- those that start programs (matrix_programs.cc) ---

// Random weights of the shape and type of a model of the catalog, drawn once.
struct DrawnModel {
  CheckResult check;           // skipped: for want of a shape or a tokenizer
  std::filesystem::path file;  // where they are, when it passed
};
// With the tokenizer of `tokenizers`/ID, a folder, or `tokenizers`/ID.gguf.
DrawnModel draw_model(const contract::ModelEntry& known, const std::filesystem::path& tokenizers,
                      const std::filesystem::path& folder, const std::filesystem::path& programs,
                      const std::stop_token& stop);

// Has the pool's program fetch it. Skipped where it cannot be had, with that program's last words.
CheckResult fetch_model(const std::string& id, const std::filesystem::path& programs,
                        const std::stop_token& stop);
CheckResult check_checkpoints(Subject& subject, MatrixCell& cell);
CheckResult check_bad_path(Subject& subject, MatrixCell& cell);
CheckResult check_cut_file(Subject& subject, MatrixCell& cell);

// --- where there is a counter (matrix_counters.cc) ---

CheckResult check_energy(Subject& subject, MatrixCell& cell);
CheckResult check_memory(Subject& subject, MatrixCell& cell);

}  // namespace llorch::cli
