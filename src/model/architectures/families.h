// The rows of the architecture table after GPT-2; see each file.
#pragma once

#include "model/architecture.h"

namespace llorch::model {

Architecture llama_architecture();
Architecture mistral_architecture();
Architecture qwen2_architecture();
Architecture qwen3_architecture();
Architecture phi3_architecture();
Architecture gemma2_architecture();
Architecture gemma3_architecture();

}  // namespace llorch::model
