// Path → WeightFile: tells the format from the content (magic) or the folder, never from the name
// alone.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "formats/weight_file.h"

namespace llorch::formats {

// PATH is a .gguf (any part of a split one), a .safetensors, a PyTorch .bin/.pt/.pth (of these, any
// shard with its index beside it), or a folder in Hugging Face layout. In a folder the order is:
// model.safetensors(.index.json), the only .safetensors, pytorch_model.bin(.index.json), the only
// .gguf; the error lists what was looked for. config.json and generation_config.json beside the
// weights become "config.*" and "generation_config.*" metadata, except for GGUF, which carries its
// own facts.
Result<WeightFile> open_weights(const std::filesystem::path& path);

}  // namespace llorch::formats
