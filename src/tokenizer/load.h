// Model files → Tokenizer. The only part of the module that sees formats/.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace llorch::formats {
class Metadata;
}

namespace llorch::tokenizer {

// The tokenizer of the model at PATH: a .gguf file, a tokenizer.json, a tokenizer.model, a folder
// with one of these, or any other file of a model, beside which (and then in the folder above) it
// is looked for. NotFound lists where. What a file asks for and we do not have is Unsupported and
// says what.
Result<Tokenizer> load_tokenizer(const std::filesystem::path& path);

// GGUF's "tokenizer.ggml.*".
Result<Tokenizer> from_gguf(const formats::Metadata& metadata);

// The files of a Hugging Face folder, each as its text; empty where there is none. tokenizer_json
// is required.
struct HuggingFaceFiles {
  std::string_view tokenizer_json;
  std::string_view tokenizer_config;   // special tokens, add_bos_token, chat templates
  std::string_view generation_config;  // eos_token_id
  std::string_view config;             // eos_token_id
  std::string_view chat_template;      // chat_template.jinja
};
Result<Tokenizer> from_tokenizer_json(const HuggingFaceFiles& files);

// SentencePiece's own model file, a protocol buffer; the other files as above (tokenizer_json
// unused).
Result<Tokenizer> from_sentencepiece(std::string_view model, const HuggingFaceFiles& files = {});

}  // namespace llorch::tokenizer
