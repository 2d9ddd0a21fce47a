#include "tools/tokenize_command.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
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
#include "base/version.h"
#include "tokenizer/load.h"
#include "tools/template_batch.h"
#include "tools/tokenize.h"

namespace llorch::tools {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

constexpr const char* kFooter = R"(Without TEXT the standard input is read.

Examples:
  llorch-tokenize --model model.gguf "Hello, world"
  llorch-tokenize --model ~/models/qwen --special "<|im_start|>user"
  llorch-tokenize --model model.gguf --decode 9906 11 1917
  llorch-tokenize --model model.gguf --batch < texts.jsonl

--batch reads lines {"text": "…"} and answers each with a line
  {"ids", "ids_with_special", "decoded"} or {"error"}
where ids has nothing added and special tokens in the text recognised.
With --template it reads {"messages", "tools", "add_generation_prompt",
"bos_token", "eos_token"} and answers {"output"} or {"error"}.

Exit code: 0; 1 when the tokenizer or the input could not be read; 2 for a
mistake on the command line.)";

struct Options {
  std::string model, template_file, now;
  std::vector<std::string> words;
  bool decodes = false, json_output = false, special = false, batch = false;
};

void complain(std::string_view message) {
  const std::string line = fmt::format("llorch-tokenize: {}\n", base::printable(message));
  std::fputs(line.c_str(), stderr);
}

int fail(const Error& error) {
  complain(error.message);
  return kFailure;
}

int print(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return 0;
  complain("the output could not be written");
  return kFailure;
}

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
      complain("the output could not be written");
      return kFailure;
    }
  }
  return print("");
}

int run_template(const Options& options) {
  constexpr std::size_t kMaxTemplateBytes = std::size_t{16} << 20;
  const Result<std::string> source = base::read_text_file(options.template_file, kMaxTemplateBytes);
  if (!source.ok()) return fail(source.error());
  std::optional<std::chrono::local_seconds> now;
  if (!options.now.empty()) {
    const Result<std::chrono::local_seconds> date = parse_date(options.now);
    if (!date.ok()) return fail(date.error());
    now = date.value();
  }
  std::ios::sync_with_stdio(false);
  const Status rendered = render_template_batch(source.value(), now, std::cin, std::cout);
  if (!rendered.ok()) return fail(rendered.error());
  std::cout.flush();
  if (std::cout.good()) return 0;
  complain("the output could not be written");
  return kFailure;
}

int run_decode(const tokenizer::Tokenizer& tokenizer, const Options& options) {
  const Result<std::vector<tokenizer::TokenId>> ids = parse_ids(input_of(options));
  if (!ids.ok()) return fail(ids.error());
  const std::string text = tokenizer.decode(ids.value(), {.keep_special = options.special});
  if (!options.json_output) return print(text + "\n");
  json::Object object;
  object["text"] = text;
  return print(json::serialize(object) + "\n");
}

int run_encode(const tokenizer::Tokenizer& tokenizer, const Options& options,
               const char* no_color) {
  const Result<std::vector<tokenizer::TokenId>> ids = tokenizer.encode(
      input_of(options), {.add_special = options.special, .parse_special = options.special});
  if (!ids.ok()) return fail(ids.error());
  if (options.json_output)
    return print(json::serialize(tokens_json(tokenizer, ids.value())) + "\n");
  return print(tokens_text(tokenizer, ids.value(), base::wants_color(stdout, no_color)));
}

}  // namespace

int run_tokenize(int argc, const char* const* argv, const char* no_color) {
  CLI::App app("Shows how a model cuts text into tokens.", "llorch-tokenize");
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
  app.add_option("--template", options.template_file, "with --batch: render this chat template")
      ->type_name("FILE");
  app.add_option("--now", options.now, "the date that templates see, as 2024-07-26")
      ->type_name("DATE");
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", "llorch-tokenize " + std::string(base::version()),
                       "print the version");
  app.footer(kFooter);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;  // help and version also arrive here
  }
  if (!options.template_file.empty() && options.batch) return run_template(options);
  if (options.model.empty() || !options.template_file.empty()) {
    complain("expected --model PATH, or --template FILE with --batch; see --help");
    return kUsage;
  }
  const Result<tokenizer::Tokenizer> tokenizer = tokenizer::load_tokenizer(options.model);
  if (!tokenizer.ok()) return fail(tokenizer.error());
  if (options.batch) return run_batch(tokenizer.value());
  if (options.decodes) return run_decode(tokenizer.value(), options);
  return run_encode(tokenizer.value(), options, no_color);
}

}  // namespace llorch::tools
