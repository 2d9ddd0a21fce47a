// What `llorch-cpud --plan-memory` says against what the same program really takes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "contract/pool_info.h"
#include "support/run_program.h"
#include "support/sanitized.h"
#include "worker/worker_fixture.h"

namespace llorch::test {
namespace {

using contract::MemoryNeed;
using ::testing::HasSubstr;

constexpr double kMiB = 1024.0 * 1024.0;
// What is promised, and for models of a few megabytes what one page more or less of program code
// and one more buffer per connection come to.
constexpr double kTolerance = 0.03;
constexpr double kFloorMiB = 1.0;
// What a plan counts for the pages of the program's file and its libraries'.
constexpr double kProgramPagesMiB = 11.5;
constexpr double kProgramPagesTolerance = 2.0;

std::optional<MemoryNeed> plan(const std::string& model, std::vector<std::string> flags) {
  flags.insert(flags.begin(),
               {"--plan-memory", "--model", model, "--threads", "1"});  // as WorkerFixture
  const ProgramOutcome outcome = run_program(cpud_program(), flags);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Result<json::Value> value = json::parse(outcome.out);
  EXPECT_TRUE(value.ok()) << outcome.out;
  if (!value.ok()) return std::nullopt;
  const Result<MemoryNeed> need = contract::parse_memory_need(*value);
  EXPECT_TRUE(need.ok()) << need.error().message;
  return need.ok() ? std::optional(*need) : std::nullopt;
}

double peak_mib(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

// What is mapped of the program's file and its libraries' now. The kernel decides how much it maps
// around what is touched: the same start of the same program differs by more than 1 MiB.
double program_pages_mib(pid_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/smaps", pid));
  const std::string program = std::filesystem::path(cpud_program()).filename().string();
  double kib = 0;
  bool is_program = false;
  std::string line;
  while (std::getline(maps, line)) {
    const bool is_heading = line.find(':') == std::string::npos || line.find('-') < line.find(':');
    if (is_heading) {
      is_program = line.ends_with(program) || line.find(".so") != std::string::npos;
    } else if (is_program && line.starts_with("Rss:")) {
      kib += std::stod(line.substr(4));
    }
  }
  return kib / 1024;
}

// `word` as often as fits into the context, with room for an answer.
std::string fill_context(const WorkerFixture& worker, std::string_view word, int context) {
  constexpr int kSample = 16;
  std::string sample;
  for (int i = 0; i < kSample; ++i) sample += word;
  const json::Value counted =
      json::parse(worker.post("/tokenize", json::serialize(json::Object{{"text", sample}})).body)
          .take();
  const double per_word = counted.at("count").to_number<double>() / kSample;
  std::string text;
  const int count = std::max(1, static_cast<int>((context - 48) / std::max(per_word, 1.0)));
  for (int i = 0; i < count; ++i) text += word;
  return text;
}

// What traffic does beside filling every slot: prompts as long as the context, log-probabilities,
// several choices, JSON, embeddings, large texts to count.
void ask_for_everything(const WorkerFixture& worker, int context, std::string_view word) {
  // A vocabulary without spaces has one piece as its word.
  const bool has_spaces = word.find(' ') != std::string_view::npos;
  const std::string text =
      fill_context(worker, has_spaces ? std::string(word) + " " : std::string(word), context);
  const auto ask = [&](std::string_view path, json::Object body) {
    const http::Response response = worker.post(path, json::serialize(body));
    EXPECT_EQ(response.status, 200) << path << ": " << response.body.substr(0, 300);
  };
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 2; ++i) {
      clients.emplace_back([&, i] {
        ask("/v1/completions", {{"prompt", text}, {"max_tokens", 8}, {"logprobs", i == 0 ? 5 : 0}});
      });
    }
  }
  ask("/v1/completions", {{"prompt", std::string(word)}, {"max_tokens", 8}, {"n", 3}});
  ask("/v1/embeddings", {{"input", json::Array(32, json::Value(std::string(word)))}});
  ask("/tokenize", {{"text", text + text}});
}

// Starts what was planned, fills every slot, asks for everything, and compares. The line that it
// prints, with the model's `name`, is what docs/data/memory.txt keeps.
void expect_as_planned(const std::string& model, const std::vector<std::string>& flags,
                       std::string_view name, std::string_view prompt = "Once upon a time") {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers take memory of their own";
  SCOPED_TRACE(name);
  const std::optional<MemoryNeed> need = plan(model, flags);
  ASSERT_TRUE(need);
  std::vector<std::string> exact = flags;
  exact.insert(exact.end(), {"--kv-memory", std::to_string(need->kv_bytes)});
  WorkerFixture worker(model, exact);
  ASSERT_TRUE(worker.wait_until_healthy()) << worker.process().err();
  EXPECT_EQ(worker.health().context_length, need->context);
  const double at_start = peak_mib(worker.process().pid());
  std::vector<std::jthread> clients;
  for (int slot = 0; slot < need->slots; ++slot) {
    clients.emplace_back([&, slot] {
      const ExecuteOutcome outcome = worker.execute(
          fmt::format(R"({{"job_id":"j{}","prompt":"{}","max_tokens":20}})", slot, prompt));
      EXPECT_TRUE(outcome.end.has_value()) << outcome.body;
    });
  }
  clients.clear();
  const double filled = peak_mib(worker.process().pid());
  ask_for_everything(worker, need->context, prompt);
  const double pages = program_pages_mib(worker.process().pid());
  EXPECT_NEAR(pages, kProgramPagesMiB, kProgramPagesTolerance);
  const double peak = peak_mib(worker.process().pid());
  const double found = peak - pages + kProgramPagesMiB;
  const double planned = static_cast<double>(need->device_bytes()) / kMiB;
  fmt::print(
      "{}, context {}, {} slots, {}: planned {:.1f} MiB, measured {:.1f} MiB ({:+.1f} %, {:+.1f} "
      "MiB); at the start {:.1f} MiB, with all slots used {:.1f} MiB, {:.1f} MiB of the program\n",
      name, need->context, need->slots, need->kv_type, planned, found,
      100 * (planned - found) / found, planned - found, at_start, filled, pages);
  EXPECT_NEAR(planned, found, std::max(kFloorMiB, kTolerance * found));
  // Nothing is left for later: an answer does not make a worker grow.
  EXPECT_LT(peak - at_start, std::max(2 * kFloorMiB, 0.02 * peak));
}

TEST(WorkerMemory, IsAsPlannedForTheBuiltInModel) {
  expect_as_planned("builtin", {}, "built-in");
  expect_as_planned("builtin", {"--ctx", "256", "--max-batch", "2"}, "built-in");
  expect_as_planned("builtin", {"--max-batch", "40"}, "built-in");
}

TEST(WorkerMemory, IsAsPlannedForAQuantisedCache) {
  expect_as_planned("builtin", {"--kv", "q8_0"}, "built-in");
  const std::optional<MemoryNeed> half = plan("builtin", {});
  const std::optional<MemoryNeed> quantised = plan("builtin", {"--kv", "q8_0"});
  ASSERT_TRUE(half && quantised);
  EXPECT_EQ(quantised->kv_bytes, half->kv_bytes / 64 * 34);
  EXPECT_EQ(half->kv_q8_0_bytes, quantised->kv_bytes);
  EXPECT_EQ(quantised->kv_q8_0_bytes, 0);
}

// GPT-2's matrices are stored the other way round: they are copied, and the file's pages go.
TEST(WorkerMemory, IsAsPlannedWhereWeightsAreCopied) {
  const TempDir folder;
  write_test_model(folder / "big", {.layers = 8, .hidden = 512, .heads = 8, .context = 1024});
  expect_as_planned((folder / "big").string(), {"--max-batch", "4"}, "GPT-2, random");
}

// Small models of every family, with a vocabulary that fits theirs.
TEST(WorkerMemory, IsAsPlannedForEveryFamily) {
  for (const std::string_view family :
       {"gemma2", "gemma3", "llama", "mistral", "phi3", "phi3_long", "qwen2", "qwen3"}) {
    const TempDir folder;
    for (const std::string_view file : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(
          source_path(fmt::format("tests/golden/families/{}/{}", family, file)), folder / file);
    }
    json::Object vocab;
    std::string first;
    for (int id = 0; id < 192; ++id) {
      const std::string piece = {static_cast<char>(0xC4 + id / 64),
                                 static_cast<char>(0x80 + id % 64)};  // U+0100 and on
      if (id == 0) first = piece;
      vocab[piece] = id;
    }
    const json::Object model{{"type", "BPE"}, {"vocab", vocab}, {"merges", json::Array()}};
    std::ofstream(folder / "tokenizer.json")
        << json::serialize(json::Object{{"added_tokens", json::Array()}, {"model", model}});
    expect_as_planned(folder.path().string(), {"--max-batch", "4"}, family, first);
  }
}

TEST(WorkerMemory, IsAsPlannedForRealModels) {
  for (const std::string_view model :
       {"minimind2-small/hf", "minimind2-small/minimind2-small-Q4_K_M.gguf",
        "stories15M/stories15M-Q8_0.gguf", "stories260K/gguf/stories260K-Q4_K_M.gguf"}) {
    const auto path = data_path(fmt::format("weights/{}", model));
    if (!path) GTEST_SKIP() << "no " << model;
    expect_as_planned(path->string(), {"--ctx", "256", "--max-batch", "4"}, model);
  }
  constexpr std::string_view kLongOne = "minimind2-small/minimind2-small-Q4_K_M.gguf";
  const auto long_one = data_path(fmt::format("weights/{}", kLongOne));
  expect_as_planned(long_one->string(), {"--ctx", "2048", "--max-batch", "2"}, kLongOne);
}

TEST(WorkerMemory, PlanningNeedsNoPortAndSaysWhyItCannot) {
  const ProgramOutcome missing =
      run_program(cpud_program(), {"--plan-memory", "--model", "/nowhere/x.gguf"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("llorch-cpud: "));
  EXPECT_THAT(missing.err, HasSubstr("/nowhere/x.gguf"));
  EXPECT_EQ(missing.out, "");
  const ProgramOutcome too_long =
      run_program(cpud_program(), {"--plan-memory", "--model", "builtin", "--ctx", "99999"});
  EXPECT_EQ(too_long.exit_code, 1);
  EXPECT_THAT(too_long.err, HasSubstr("--ctx 99999"));
  EXPECT_EQ(run_program(cpud_program(), {"--plan-memory"}).exit_code, 2) << "no model";
  EXPECT_EQ(run_program(cpud_program(), {"--model", "builtin"}).exit_code, 2) << "no port";
}

// Heads of 16 values are not whole blocks of 32.
TEST(WorkerMemory, AQuantisedCacheThatCannotBeIsRefusedBeforeLoading) {
  const TempDir folder;
  write_test_model(folder / "small");
  const ProgramOutcome outcome = run_program(
      cpud_program(), {"--plan-memory", "--model", (folder / "small").string(), "--kv", "q8_0"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("multiple of 32"));
  EXPECT_THAT(outcome.err, HasSubstr("f16"));
  const std::optional<MemoryNeed> need = plan((folder / "small").string(), {});
  ASSERT_TRUE(need);
  EXPECT_EQ(need->kv_q8_0_bytes, 0) << "no advice that cannot be followed";
}

// Eight bits for each key and value change little: a greedy story goes the same way for long.
TEST(WorkerMemory, AQuantisedCacheTellsTheSameStory) {
  const auto story = [](const std::string& kv) {
    WorkerFixture worker("builtin", {"--kv", kv, "--max-batch", "2"});
    EXPECT_TRUE(worker.wait_until_healthy());
    return worker
        .execute(R"({"job_id":"a","prompt":"Once upon a time","max_tokens":60,"temperature":0})")
        .tokens;
  };
  const std::vector<std::string> half = story("f16");
  const std::vector<std::string> quantised = story("q8_0");
  ASSERT_GE(half.size(), 40U);
  const auto differ = std::mismatch(half.begin(), half.end(), quantised.begin(), quantised.end());
  EXPECT_GE(differ.first - half.begin(), 20);
}

}  // namespace
}  // namespace llorch::test
