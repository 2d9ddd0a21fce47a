// What a mask costs, on one core:
//   grammar_bench MODEL...
// One line of JSON for each model (a tokenizer's folder or file): the time to build its table, and
// for texts written under json_object and a schema, one id at a time, what mask() took: median,
// 99th percentile and worst, and the same for masks within strings.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/json_grammar.h"
#include "grammar/token_mask.h"
#include "tokenizer/load.h"

namespace {

using namespace llorch;

constexpr std::string_view kSchema =
    R"({"type":"object","properties":{"steps":{"type":"array","items":{"$ref":"#/$defs/step"}},
        "unit":{"type":"string","enum":["celsius","fahrenheit"]},"score":{"type":"number","minimum":0,"maximum":1},
        "title":{"type":"string","maxLength":80},
        "next":{"anyOf":[{"$ref":"#/$defs/step"},{"type":"string"},{"type":"null"}]}},
        "required":["steps","unit","score","title","next"],"additionalProperties":false,
        "$defs":{"step":{"type":"object","properties":{"explanation":{"type":"string"},"output":{"type":"string"}},
        "required":["explanation","output"],"additionalProperties":false}}})";
constexpr std::string_view kText =
    R"({"steps": [{"explanation": "Take the temperature of the water, then \"wait\" for a minute.", "output": "21 °C"},
 {"explanation": "Repeat – 日本語 works too 😀.", "output": "22"}], "unit": "celsius", "score": 0.875,
  "title": "How warm is the lake this morning?", "next": {"explanation": "none", "output": "done"}})";
// Keys that are not those named: no id is known to be allowed before it was walked.
constexpr std::string_view kOtherKeys =
    R"({"type":"object","properties":{"zebra":{},"steps":{}},"additionalProperties":{"type":"array"}})";
constexpr std::string_view kOtherKeysText = R"({"other": [], "keys": [], "follow": []})";
// As hard as it gets: many strings side by side.
std::string hostile_schema() {
  std::string schema = R"({"anyOf":[)";
  for (int i = 0; i < 100; ++i) {
    schema += fmt::format(
        R"({}{{"type":"object","properties":{{"steps":{{"type":"string","minLength":{}}}}},
                             "required":["steps"]}})",
        i == 0 ? "" : ",", i + 1);
  }
  return schema + "]}";
}
constexpr std::string_view kHostileText =
    R"({"steps": "Take the temperature of the water, then wait.)";

// CPU time: on a busy machine the clock on the wall measures the others.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// What each id adds to a text: byte pieces of SentencePiece are bytes, its mark is a space.
std::vector<std::string> bytes_of(const tokenizer::Tokenizer& tokenizer) {
  const bool has_marks = tokenizer.find_piece("▁").has_value();
  std::vector<std::string> bytes(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto id = static_cast<tokenizer::TokenId>(i);
    if (tokenizer.is_special(id)) continue;
    std::string piece(tokenizer.piece(id));
    unsigned byte = 0;
    if (has_marks && piece.size() == 6 && std::sscanf(piece.c_str(), "<0x%02X>", &byte) == 1) {
      piece = static_cast<char>(byte);
    }
    for (std::size_t at = 0; has_marks && (at = piece.find("▁", at)) != std::string::npos; ++at) {
      piece.replace(at, 3, " ");
    }
    bytes[i] = std::move(piece);
  }
  return bytes;
}

// Follows `text` with the longest id that is allowed and fits; the time of each mask.
std::vector<double> follow(grammar::TokenMasker masker, const std::vector<std::string>& bytes,
                           std::string_view text) {
  std::vector<double> times;
  std::vector<float> logits(bytes.size());
  while (!text.empty()) {
    std::fill(logits.begin(), logits.end(), 0.0F);
    const double began = cpu_seconds();
    masker.mask(logits);
    times.push_back(cpu_seconds() - began);
    std::size_t best = bytes.size();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (logits[i] != 0.0F || bytes[i].empty() || !text.starts_with(bytes[i])) continue;
      if (best == bytes.size() || bytes[i].size() > bytes[best].size()) best = i;
    }
    if (best == bytes.size() || !masker.accept(static_cast<grammar::TokenId>(best))) {
      fmt::print(stderr, "no id continues the text at: {}\n", text);
      break;
    }
    text.remove_prefix(bytes[best].size());
  }
  return times;
}

json::Object summary(const std::shared_ptr<const grammar::JsonGrammar>& compiled,
                     const std::shared_ptr<const grammar::TokenTable>& table,
                     const std::vector<std::string>& bytes, std::string_view text) {
  std::vector<double> times;
  for (int run = 0; run < 5; ++run) {
    const std::vector<double> one = follow({compiled, table}, bytes, text);
    times.insert(times.end(), one.begin(), one.end());
  }
  std::sort(times.begin(), times.end());
  json::Object result;
  result["masks"] = times.size();
  result["median_us"] = times[times.size() / 2] * 1e6;
  result["p99_us"] = times[times.size() * 99 / 100] * 1e6;
  result["max_us"] = times.back() * 1e6;
  return result;
}

int measure(const std::string& model) {
  const Result<tokenizer::Tokenizer> tokenizer = tokenizer::load_tokenizer(model);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return 1;
  }
  const std::vector<std::string> bytes = bytes_of(tokenizer.value());
  const double began = cpu_seconds();
  const auto table = grammar::TokenTable::create(bytes, tokenizer->end_ids());
  const double built = cpu_seconds();
  if (!table.ok()) {
    fmt::print(stderr, "{}: {}\n", model, table.error().message);
    return 1;
  }
  const auto schema = grammar::compile_json_schema(json::parse(kSchema).take());
  const double compiled = cpu_seconds();
  const auto object = grammar::compile_json_object();
  const auto other_keys = grammar::compile_json_schema(json::parse(kOtherKeys).take());
  const auto hostile = grammar::compile_json_schema(json::parse(hostile_schema()).take());
  if (!schema.ok() || !object.ok() || !other_keys.ok() || !hostile.ok()) {
    fmt::print(stderr, "a schema of this program did not compile\n");
    return 1;
  }
  json::Object line;
  line["model"] = model;
  line["vocabulary"] = bytes.size();
  line["table_ms"] = (built - began) * 1e3;
  line["compile_us"] = (compiled - built) * 1e6;
  line["json_object"] = summary(object.value(), table.value(), bytes, kText);
  line["json_schema"] = summary(schema.value(), table.value(), bytes, kText);
  line["other_keys"] = summary(other_keys.value(), table.value(), bytes, kOtherKeysText);
  line["hostile"] = summary(hostile.value(), table.value(), bytes, kHostileText);
  fmt::print("{}\n", json::serialize(line));
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: grammar_bench MODEL...\n");
    return 2;
  }
  int status = 0;
  for (int i = 1; i < argc; ++i) status = std::max(status, measure(argv[i]));
  return status;
}
