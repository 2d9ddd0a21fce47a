// Tests only: a small random Llama with a tokenizer, as a Hugging Face folder.
#pragma once

#include <filesystem>
#include <string>

namespace llorch::tools {

struct TestModelOptions {
  bool has_nan = false;  // one weight of blk.1.ffn_up is not a number
  std::string chat_template = "{{ messages[0].content }}";
};

// Width 256, two layers, the vocabulary of tests/golden/tokenizer/byte_level and a few rows more.
void write_test_model(const std::filesystem::path& folder, const TestModelOptions& options = {});

}  // namespace llorch::tools
