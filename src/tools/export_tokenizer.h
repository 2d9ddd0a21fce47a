// A model's tokenizer files → GGUF's "tokenizer.*" keys.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/metadata.h"
#include "tokenizer/load.h"

namespace llorch::tools {

struct ExportOptions {
  std::string_view architecture;  // general.architecture of the file to be
  std::int32_t vocab_size = 0;  // rows of its token embedding; 0: as many as the tokenizer has ids
};

struct GgufExport {
  // "general.architecture", by which some tokenizers' rules go, and "tokenizer.*".
  formats::Metadata metadata;
  // What readers of GGUF files do differently from the files exported, where GGUF has no word for
  // it and plain text is not touched. For the user to read.
  std::vector<std::string> notes;
};

// The tokenizer that load_tokenizer(path) finds. What was written is read back before it is
// returned: it has the same pieces, special ids and templates, and encodes a set of texts alike. A
// tokenizer that GGUF cannot hold is Unsupported, and the message says what of it. A .gguf is
// InvalidArgument: its keys can be copied.
Result<GgufExport> export_tokenizer(const std::filesystem::path& path,
                                    const ExportOptions& options);
// The same from files that are in memory; tokenizer_json is required.
Result<GgufExport> export_tokenizer(const tokenizer::HuggingFaceFiles& files,
                                    const ExportOptions& options);

}  // namespace llorch::tools
