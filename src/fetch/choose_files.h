// Which files of a repository or a package are the model: a decision about names, no input or
// output. Private to fetch/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::fetch {

struct ListedFile {
  std::string path;  // from the root, '/' between parts
  std::int64_t size = 0;
  std::string sha256{};    // empty: not published
  std::string git_sha1{};  // the same

  friend bool operator==(const ListedFile&, const ListedFile&) = default;
};

// The files to fetch, with `folder` in front of all their paths: the weights' own folder ("" or
// "a/b/"), below which their paths begin.
struct ChosenFiles {
  std::string folder;
  std::vector<ListedFile> files;
};

// `wanted` is a file's path, a quantisation's name ("Q4_K_M"), or empty. A name takes the GGUF that
// bears it, all parts of a split one together. Nothing wanted: SafeTensors with a config.json win;
// then GGUF, the only one or the Q4_K_M; then SafeTensors without, then PyTorch. Weights other than
// GGUF come with the configuration and tokenizer files of their folder. Weights for other programs
// (ONNX, Flax, TensorFlow) never come. NotFound and Conflict list the choices; `what` names the
// repository in messages.
Result<ChosenFiles> choose_files(const std::vector<ListedFile>& listing, std::string_view wanted,
                                 std::string_view what);

}  // namespace llorch::fetch
