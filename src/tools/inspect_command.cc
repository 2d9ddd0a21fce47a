#include "tools/inspect_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/terminal.h"
#include "tools/command_line.h"
#include "tools/inspect.h"

namespace llorch::tools {
namespace {

constexpr std::string_view kProgram = "llorch-inspect";

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
  tensors [{name, type, shape, bytes}], runs_here, obstacles,
  chat_template_error, assumed [keys left out and the default taken]
runs_here: a worker starts on it, so weights and tokenizer are both usable.
What the files do not say is null. Shapes have the slowest dimension first.

Exit code: 0 when the model could be read, whether or not it runs here;
1 when it could not; 2 for a mistake on the command line.)";

}  // namespace

int run_inspect(int argc, const char* const* argv, const char* no_color) {
  CLI::App app("Shows what a model file holds and whether it runs here.", std::string(kProgram));
  std::string path;
  bool json_output = false;
  bool tensors = false;
  app.add_option("MODEL", path,
                 "a .gguf, .safetensors or PyTorch file,\nor a folder in Hugging Face layout")
      ->required()
      ->type_name("PATH");
  app.add_flag("--json", json_output, "print one JSON object, tensors included");
  app.add_flag("--tensors", tensors, "list every tensor");
  if (const auto done = parse_command_line(app, kFooter, argc, argv)) return *done;
  const Result<Inspection> inspection = inspect(path);
  if (!inspection.ok()) {
    return fail(kProgram, inspection.error().message);
  }
  if (json_output) return print(kProgram, json::serialize(report_json(inspection.value())) + "\n");
  return print(kProgram,
               report_text(inspection.value(), tensors, base::wants_color(stdout, no_color)));
}

}  // namespace llorch::tools
