// Checks of the matrix that start programs beside us: the checkpoints, and workers that must not
// start.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <vector>

#include "base/ascii.h"
#include "base/process.h"
#include "base/terminal.h"
#include "cli/matrix_checks.h"
#include "contract/backend_kind.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kCheckpointsPatience{600'000};
constexpr milliseconds kRefusalPatience{60'000};
constexpr milliseconds kFetchPatience{4 * 3'600'000};
constexpr milliseconds kTick{50};
constexpr std::uintmax_t kFrontBytes = std::uintmax_t{64} << 20;
constexpr int kDrawSeed = 1;
constexpr milliseconds kDrawPatience{3'600'000};
constexpr std::size_t kDetailBytes = 300;

// What `llorch-convert --random` calls the shapes of the catalog's models.
struct KnownShape {
  std::string_view model;
  std::string_view shape;
};
constexpr std::array kShapes = {KnownShape{"gpt2", "gpt2"},
                                KnownShape{"gpt2-medium", "gpt2-medium"},
                                KnownShape{"smollm2-135m", "smollm2-135m"},
                                KnownShape{"qwen-0.5b", "qwen2.5-0.5b"},
                                KnownShape{"tinyllama", "tinyllama-1.1b"},
                                KnownShape{"phi3", "phi-3-mini"},
                                KnownShape{"mistral", "mistral-7b"}};

// A folder that is gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code failed;
    std::string pattern = (fs::temp_directory_path(failed) / "llorch-matrix-XXXXXX").string();
    if (!failed && ::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }  // empty: it could not be made

 private:
  fs::path path_;
};

struct Outcome {
  std::optional<base::ExitStatus> exit;  // none: it was ended here
  std::string output;                    // its last part
};

Result<Outcome> run(const fs::path& program, std::vector<std::string> arguments,
                    milliseconds patience, const std::stop_token& stop) {
  base::ProcessOptions options;
  options.program = program;
  options.arguments = std::move(arguments);
  options.dies_with_parent = true;
  Result<std::unique_ptr<base::Process>> process = base::Process::spawn(options);
  if (!process.ok()) return process.error();
  const auto until = std::chrono::steady_clock::now() + patience;
  Outcome outcome;
  while (!outcome.exit && !stop.stop_requested() && std::chrono::steady_clock::now() < until)
    outcome.exit = (*process)->wait_for(kTick);
  if (!outcome.exit) (*process)->stop(milliseconds(0));
  outcome.output = (*process)->output_tail();
  return outcome;
}

std::string last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  const std::size_t begin = text.rfind('\n');
  return base::printable(text.substr(begin == std::string_view::npos ? 0 : begin + 1))
      .substr(0, kDetailBytes);
}

// A worker that is given this path must say why it does not start, and end with 1.
CheckResult expect_refusal(const Subject& subject, const fs::path& model) {
  const Result<Outcome> outcome =
      run(subject.program,
          {"--worker-id", "matrix", "--port", "0", "--model", model.string(), "--callback-url",
           "http://localhost:9999/ready"},
          kRefusalPatience, subject.stop);
  if (!outcome.ok()) return failed(outcome.error().message);
  if (!outcome->exit)
    return failed(fmt::format("the worker still ran after {} s, expected exit code 1",
                              kRefusalPatience.count() / 1000));
  std::string said = last_line(outcome->output);
  // What it says may name a temporary folder, which is nobody's business.
  const std::string folder = model.parent_path().string() + "/";
  for (std::size_t at = said.find(folder); at != std::string::npos; at = said.find(folder))
    said.erase(at, folder.size());
  if (outcome->exit->signal != 0 || outcome->exit->code != 1)
    return failed(
        fmt::format("the worker {}, expected exit code 1: {}", outcome->exit->describe(), said));
  if (said.empty()) return failed("the worker ended without a word");
  return passed(said);
}

// "cuda:0" of "cuda:0 (NVIDIA H200)".
std::string checkpoints_device(const Subject& subject) {
  if (subject.backend == contract::kCpu) return subject.backend;
  const std::string& device = subject.facts.device;
  return device.empty() ? subject.backend : device.substr(0, device.find(' '));
}

// "10 of 12 passed; failed: rope (3.1e-02, at most 1e-04)" of what llorch-checkpoints --json says.
std::string failed_rungs(std::string_view output) {
  const std::size_t begin = output.find('{');
  const Result<json::Value> value =
      json::parse(begin == std::string_view::npos ? "" : output.substr(begin));
  if (!value.ok() || !value->is_object()) return last_line(output);
  const json::Value* rungs = value->get_object().if_contains("checkpoints");
  if (rungs == nullptr || !rungs->is_array()) return last_line(output);
  std::string names;
  for (const json::Value& rung : rungs->get_array()) {
    const json::Object* object = rung.if_object();
    const json::Value* good = object != nullptr ? object->if_contains("passed") : nullptr;
    const json::Value* label = object != nullptr ? object->if_contains("name") : nullptr;
    if (good == nullptr || !good->is_bool() || good->get_bool() || label == nullptr ||
        !label->is_string())
      continue;
    names += (names.empty() ? "" : ", ") + base::printable(json::view(label->get_string()));
  }
  return names.empty() ? last_line(output) : "failed: " + names;
}

bool is_weights(const fs::path& file) {
  const std::string ending = file.extension().string();
  return ending == ".gguf" || ending == ".safetensors" || ending == ".bin" || ending == ".pt" ||
         ending == ".pth";
}

// The largest file of weights in a folder; empty: none.
fs::path largest_weights(const fs::path& folder) {
  fs::path largest;
  std::uintmax_t most = 0;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code ignored;
    const std::uintmax_t size = fs::file_size(at->path(), ignored);
    if (ignored || !is_weights(at->path()) || size <= most) continue;
    most = size;
    largest = at->path();
  }
  return largest;
}

// A file of `size` bytes with the front of another; the rest is a hole that takes no room. A
// worker sees by the size what is missing, and where weights lie is said in front.
void copy_front(const fs::path& from, const fs::path& to, std::uintmax_t size,
                std::error_code& failed) {
  std::ifstream in(from, std::ios::binary);
  std::ofstream out(to, std::ios::binary);
  std::vector<char> block(std::size_t{1} << 20);
  for (std::uintmax_t at = 0; in && out && at < std::min(size, kFrontBytes); at += block.size()) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    out.write(block.data(), in.gcount());
  }
  out.close();
  if (!out || in.bad())
    failed = std::make_error_code(std::errc::io_error);
  else
    fs::resize_file(to, size, failed);
}

// The other files of a folder, as links; an error that could not be helped is in `failed`.
void link_others(const fs::path& from, const fs::path& to, const fs::path& but,
                 std::error_code& failed) {
  for (fs::directory_iterator at(from, failed), end; !failed && at != end; at.increment(failed))
    if (at->path() != but && !at->is_directory(failed) && !failed)
      fs::create_symlink(fs::absolute(at->path()), to / at->path().filename(), failed);
}

}  // namespace

CheckResult fetch_model(const std::string& id, const fs::path& programs,
                        const std::stop_token& stop) {
  const Result<Outcome> outcome =
      run(programs / "llorch-pool", {"models", "download", id}, kFetchPatience, stop);
  if (!outcome.ok()) return failed(outcome.error().message);
  if (outcome->exit && outcome->exit->success()) return passed("fetched");
  return skipped(outcome->exit ? "cannot be had: " + last_line(outcome->output)
                               : "the download was given up");
}

DrawnModel draw_model(const contract::ModelEntry& known, const fs::path& tokenizers,
                      const fs::path& folder, const fs::path& programs,
                      const std::stop_token& stop) {
  const auto found = std::find_if(kShapes.begin(), kShapes.end(),
                                  [&](const KnownShape& one) { return one.model == known.id; });
  if (found == kShapes.end())
    return {skipped("its files are not here, and no shape of that name can be drawn"), {}};
  std::error_code ignored;
  fs::path tokenizer = tokenizers / known.id;
  if (!fs::exists(tokenizer, ignored)) tokenizer += ".gguf";
  if (!fs::exists(tokenizer, ignored))
    return {
        skipped(fmt::format("its files are not here, and the folder of --random has neither {0} "
                            "nor {0}.gguf to take a tokenizer from",
                            known.id)),
        {}};
  const std::string type = base::ascii_lower(known.quantization);
  // Of a link what it leads to, which says more about whose tokenizer it is.
  const fs::path real = fs::canonical(tokenizer, ignored);
  const std::string whose = (ignored ? tokenizer : real).filename().string();
  const std::string stem = whose.ends_with(".gguf") ? whose.substr(0, whose.size() - 5) : whose;
  const fs::path file =
      folder / fmt::format("{}-{}-seed{}-{}.gguf", found->shape, type, kDrawSeed, stem);
  const CheckResult drawn =
      passed(fmt::format("random weights of the shape {}, {}, seed {}, with the tokenizer {}",
                         found->shape, known.quantization, kDrawSeed, whose));
  if (fs::exists(file, ignored)) return {drawn, file};
  fs::create_directories(folder, ignored);  // that it is not there is said by the program
  const Result<Outcome> outcome =
      run(programs / "llorch-convert",
          {"--random", std::string(found->shape), file.string(), "--type", type, "--seed",
           std::to_string(kDrawSeed), "--tokenizer", tokenizer.string()},
          kDrawPatience, stop);
  if (!outcome.ok()) return {failed(outcome.error().message), {}};
  if (!outcome->exit) return {skipped("the drawing was given up"), {}};
  if (!outcome->exit->success()) return {failed(last_line(outcome->output)), {}};
  return {drawn, file};
}

CheckResult check_checkpoints(Subject& subject, MatrixCell&) {
  if (subject.files.empty()) return skipped(why_no_files(subject));
  std::error_code ignored;
  const fs::path program = subject.tools / "llorch-checkpoints";
  if (!fs::exists(program, ignored)) return skipped("llorch-checkpoints is not installed");
  const Result<Outcome> outcome =
      run(program,
          {"--model", subject.files.string(), "--backend", checkpoints_device(subject), "--json"},
          kCheckpointsPatience, subject.stop);
  if (!outcome.ok()) return failed(outcome.error().message);
  if (!outcome->exit)
    return skipped(
        fmt::format("took longer than {} s; `llorch-checkpoints --model FILE` has no "
                    "such limit",
                    kCheckpointsPatience.count() / 1000));
  if (!outcome->exit->success()) return failed(failed_rungs(outcome->output));
  return passed("all twelve");
}

CheckResult check_bad_path(Subject& subject, MatrixCell&) {
  if (subject.program.empty()) return skipped("the worker is another host's");
  const TemporaryFolder folder;
  if (folder.path().empty()) return skipped("no temporary folder could be made");
  return expect_refusal(subject, folder.path() / "no-such-model.gguf");
}

CheckResult check_cut_file(Subject& subject, MatrixCell&) {
  if (subject.program.empty()) return skipped("the worker is another host's");
  std::error_code failed_to_look;
  if (subject.files.empty()) return skipped(why_no_files(subject));
  const bool is_folder = fs::is_directory(subject.files, failed_to_look);
  const fs::path source = is_folder ? largest_weights(subject.files) : subject.files;
  if (source.empty()) return skipped("the folder has no weights");
  const std::uintmax_t size = fs::file_size(source, failed_to_look);
  if (failed_to_look) return skipped("its size is not known: " + failed_to_look.message());
  const TemporaryFolder folder;
  if (folder.path().empty()) return skipped("no temporary folder could be made");
  const fs::path cut = folder.path() / (is_folder ? source.filename()
                                                  : fs::path("cut" + source.extension().string()));
  if (is_folder) link_others(subject.files, folder.path(), source, failed_to_look);
  if (!failed_to_look) copy_front(source, cut, size / 3 * 2 + size % 3 * 2 / 3, failed_to_look);
  if (failed_to_look) return skipped("no copy could be made: " + failed_to_look.message());
  return expect_refusal(subject, is_folder ? folder.path() : cut);
}

}  // namespace llorch::cli
