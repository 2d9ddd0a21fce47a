// ServingModel: everything behind a worker's answers once its model is loaded.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/nvml.h"
#include "base/result.h"
#include "compute/backend.h"
#include "engine/engine.h"
#include "grammar/token_mask.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"
#include "worker/fill_in_middle.h"
#include "worker/token_texts.h"
#include "worker_http/backend.h"

namespace llorch::worker {

// Immutable once made; the engine is safe from any thread.
struct ServingModel {
  worker_http::ModelInfo info;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<const TokenTexts> texts;
  std::optional<jinja::ChatTemplate> chat;
  std::optional<jinja::ChatTemplate> chat_with_tools;  // where the model has one of its own
  std::vector<engine::TokenId> marker_ids;             // the special tokens of info.style; sorted
  std::optional<FillTokens> fill_tokens;
  std::string bos_token;
  std::string eos_token;
  // For JSON output; the error says why this vocabulary has none.
  Result<std::shared_ptr<const grammar::TokenTable>> mask_table =
      Error{ErrorCode::Unsupported, "no token table"};
  // The driver of GPUs and the places of ours on the bus; none where it says nothing.
  std::unique_ptr<base::Nvml> nvml;
  std::vector<std::string> gpu_bus_ids;
  // Declared in the order of need: the engine goes first.
  std::vector<std::unique_ptr<compute::Backend>> compute;  // in the order of the layers
  std::unique_ptr<engine::Engine> engine;
};

}  // namespace llorch::worker
