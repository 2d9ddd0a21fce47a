#include "tools/tokenize_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/terminal.h"
#include "tokenizer/load.h"
#include "tools/command_line.h"
#include "tools/template_batch.h"
#include "tools/tokenize.h"

namespace llorch::tools {
namespace {

constexpr std::string_view kProgram = "llorch-tokenize";

constexpr const char* kFooter = R"(Without TEXT the standard input is read.

Examples:
  llorch-tokenize --model model.gguf "Hello, world"
  llorch-tokenize --model ~/models/qwen --special "<|im_start|>user"
  llorch-tokenize --model model.gguf --decode 9906 11 1917
  llorch-tokenize --model model.gguf --batch < texts.jsonl

--batch reads lines {"text": "…"} and answers each with a line
  {"ids", "ids_with_special", "decoded"} or {"error"}
where ids has nothing added and special tokens in the text recognised.

--template FILE --batch renders a chat template (a .jinja file, or a
tokenizer_config.json) instead: lines {"messages", "tools",
"add_generation_prompt", "bos_token", "eos_token"} in, {"output"} or {"error"}
out. --now 2024-07-26 pins the date that the template sees.

Exit code: 0; 1 when the tokenizer or the input could not be read; 2 for a
mistake on the command line.)";

constexpr std::size_t kTemplateBytesMax = std::size_t{16} << 20;

struct Options {
  std::string model;
  std::string template_path;
  std::string now;
  std::vector<std::string> words;
  bool decodes = false, json_output = false, special = false, batch = false;
};

std::string input_of(const Options& options) {
  if (options.words.empty())
    return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  std::string text;
  for (const std::string& word : options.words) text += (text.empty() ? "" : " ") + word;
  return text;
}

int run_batch(const tokenizer::Tokenizer& tokenizer) {
  std::ios::sync_with_stdio(false);
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.empty()) continue;
    const std::string answer = batch_line(tokenizer, line) + "\n";
    if (std::fwrite(answer.data(), 1, answer.size(), stdout) != answer.size()) {
      return fail(kProgram, "the output could not be written");
    }
  }
  return print(kProgram, "");
}

int run_template(const Options& options) {
  std::optional<std::chrono::local_seconds> now;
  if (!options.now.empty()) {
    const Result<std::chrono::local_seconds> date = parse_date(options.now);
    if (!date.ok()) return fail(kProgram, date.error().message);
    now = date.value();
  }
  const Result<std::string> source = base::read_text_file(options.template_path, kTemplateBytesMax);
  if (!source.ok()) return fail(kProgram, source.error().message);
  std::ios::sync_with_stdio(false);
  const Status rendered = render_template_batch(source.value(), now, std::cin, std::cout);
  if (!rendered.ok()) return fail(kProgram, rendered.error().in(options.template_path).message);
  std::cout.flush();
  if (std::cout) return 0;
  return fail(kProgram, "the output could not be written");
}

int run_decode(const tokenizer::Tokenizer& tokenizer, const Options& options) {
  const Result<std::vector<tokenizer::TokenId>> ids = parse_ids(input_of(options));
  if (!ids.ok()) return fail(kProgram, ids.error().message);
  const std::string text = tokenizer.decode(ids.value(), {.keep_special = options.special});
  if (!options.json_output) return print(kProgram, text + "\n");
  json::Object object;
  object["text"] = text;
  return print(kProgram, json::serialize(object) + "\n");
}

int run_encode(const tokenizer::Tokenizer& tokenizer, const Options& options,
               const char* no_color) {
  const Result<std::vector<tokenizer::TokenId>> ids = tokenizer.encode(
      input_of(options), {.add_special = options.special, .parse_special = options.special});
  if (!ids.ok()) return fail(kProgram, ids.error().message);
  if (options.json_output)
    return print(kProgram, json::serialize(tokens_json(tokenizer, ids.value())) + "\n");
  return print(kProgram, tokens_text(tokenizer, ids.value(), base::wants_color(stdout, no_color)));
}

}  // namespace

int run_tokenize(int argc, const char* const* argv, const char* no_color) {
  CLI::App app("Shows how a model cuts text into tokens.", std::string(kProgram));
  Options options;
  app.add_option("-m,--model", options.model,
                 "a .gguf, tokenizer.json or tokenizer.model file,\nor a model's file or folder")
      ->type_name("PATH");
  app.add_option("TEXT", options.words, "the text, or with --decode the ids");
  app.add_flag("--decode", options.decodes, "from ids to text");
  app.add_flag("--json", options.json_output, "print one JSON object");
  app.add_flag("--special", options.special,
               "recognise special tokens in the text and add the model's own");
  app.add_flag("--batch", options.batch, "JSON lines in, JSON lines out");
  app.add_option("--template", options.template_path, "render this chat template; with --batch")
      ->type_name("FILE");
  app.add_option("--now", options.now, "the date a template sees, 2024-07-26; default: now");
  if (const auto done = parse_command_line(app, kFooter, argc, argv)) return *done;
  if (options.template_path.empty() == options.model.empty())
    return fail(kProgram, "give either --model or --template; see --help", kUsage);
  if (!options.template_path.empty()) {
    if (options.batch) return run_template(options);
    return fail(kProgram, "--template reads JSON lines: add --batch; see --help", kUsage);
  }
  const Result<tokenizer::Tokenizer> tokenizer = tokenizer::load_tokenizer(options.model);
  if (!tokenizer.ok()) return fail(kProgram, tokenizer.error().message);
  if (options.batch) return run_batch(tokenizer.value());
  if (options.decodes) return run_decode(tokenizer.value(), options);
  return run_encode(tokenizer.value(), options, no_color);
}

}  // namespace llorch::tools
