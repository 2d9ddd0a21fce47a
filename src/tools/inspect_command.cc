#include "tools/inspect_command.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/terminal.h"
#include "base/version.h"
#include "tools/inspect.h"

namespace llorch::tools {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

constexpr const char* kFooter = R"(Examples:
  llorch-inspect model.gguf
  llorch-inspect --tensors ~/models/gpt2
  llorch-inspect --json model.safetensors | jq '.tensors[0]'

--json prints one object:
  path, format, files, file_bytes, name, architecture, parameters, quantization,
  context_length, vocab_size, num_layers, embedding_length, num_heads,
  num_kv_heads, head_dim, ffn_length,
  tokenizer {source, kind, pre, size, special_ids, chat_template},
  tensor_bytes, types [{type, tensors, elements, bytes}],
  tensors [{name, type, shape, bytes}], runs_here, obstacles
What the files do not say is null. Shapes have the slowest dimension first.

Exit code: 0 when the model could be read, whether or not it runs here;
1 when it could not; 2 for a mistake on the command line.)";

// fmt::print throws when it cannot write; a full disk is no reason to crash.
void complain(std::string_view message) {
  const std::string line = fmt::format("llorch-inspect: {}\n", base::printable(message));
  std::fputs(line.c_str(), stderr);
}

int print(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written) return 0;
  complain("the output could not be written");
  return kFailure;
}

}  // namespace

int run_inspect(int argc, const char* const* argv, const char* no_color) {
  CLI::App app("Shows what a model file holds and whether it runs here.", "llorch-inspect");
  std::string path;
  bool json_output = false;
  bool tensors = false;
  app.add_option("MODEL", path,
                 "a .gguf, .safetensors or PyTorch file,\nor a folder in Hugging Face layout")
      ->required()
      ->type_name("PATH");
  app.add_flag("--json", json_output, "print one JSON object, tensors included");
  app.add_flag("--tensors", tensors, "list every tensor");
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", "llorch-inspect " + std::string(base::version()),
                       "print the version");
  app.footer(kFooter);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;  // help and version also arrive here
  }
  const Result<Inspection> inspection = inspect(path);
  if (!inspection.ok()) {
    complain(inspection.error().message);
    return kFailure;
  }
  if (json_output) return print(json::serialize(report_json(inspection.value())) + "\n");
  return print(report_text(inspection.value(), tensors, base::wants_color(stdout, no_color)));
}

}  // namespace llorch::tools
