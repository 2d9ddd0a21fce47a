// How fast tokenizers load, encode and decode, on one core:
//   tokenizer_bench TEXT_FILE MODEL...
// One line of JSON for each model. Times are CPU time, the best of several runs; memory is what the
// process gained by loading.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/load.h"

namespace {

using namespace llorch;

// CPU time: on a busy machine the clock on the wall measures the others.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double seconds_of(auto&& work) {
  const double began = cpu_seconds();
  work();
  return cpu_seconds() - began;
}

double best_of(int runs, auto&& work) {
  double best = 1e9;
  for (int i = 0; i < runs; ++i) best = std::min(best, seconds_of(work));
  return best;
}

// The most memory this process has had; not getrusage's, which starts from the parent's.
long peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtol(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

double encode_seconds(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                      std::size_t& count) {
  return best_of(5, [&] {
    const Result<std::vector<tokenizer::TokenId>> ids = tokenizer.encode(text);
    count = ids.ok() ? ids->size() : 0;
  });
}

std::string repeated(std::string_view unit) {
  std::string text;
  while (text.size() < 1'000'000) text += unit;
  return text;
}

int measure(const std::string& model, std::string_view text) {
  const long before_kib = peak_kib();
  Result<tokenizer::Tokenizer> tokenizer = tokenizer::load_tokenizer(model);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return 1;
  }
  const long load_kib = peak_kib() - before_kib;
  json::Object line;
  line["model"] = model;
  line["load_ms"] = best_of(5, [&] { tokenizer = tokenizer::load_tokenizer(model); }) * 1e3;
  line["load_peak_mib"] = static_cast<double>(load_kib) / 1024;
  std::size_t count = 0;
  const double seconds = encode_seconds(tokenizer.value(), text, count);
  line["tokens"] = count;
  line["encode_mb_per_s"] = static_cast<double>(text.size()) / seconds / 1e6;
  const std::vector<tokenizer::TokenId> ids = tokenizer->encode(text).take();
  line["decode_mb_per_s"] = static_cast<double>(text.size()) /
                            best_of(5, [&] { static_cast<void>(tokenizer->decode(ids)); }) / 1e6;
  json::Object endless;
  for (const std::string_view unit : {"a", " ", "🦙"}) {
    endless[std::string(unit)] = encode_seconds(tokenizer.value(), repeated(unit), count) * 1e3;
  }
  line["one_mb_of_ms"] = std::move(endless);
  fmt::print("{}\n", json::serialize(line));
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: tokenizer_bench TEXT_FILE MODEL...\n");
    return 2;
  }
  const Result<std::string> text = base::read_text_file(argv[1], std::size_t{1} << 30);
  if (!text.ok()) {
    fmt::print(stderr, "{}\n", text.error().message);
    return 1;
  }
  int status = 0;
  for (int i = 2; i < argc; ++i) status = std::max(status, measure(argv[i], text.value()));
  return status;
}
