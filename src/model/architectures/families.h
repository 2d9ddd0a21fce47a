// The families after GPT-2: how each reads its numbers; see each file.
#pragma once

#include "model/architecture.h"

namespace llorch::model {

ReadConfig read_llama;
ReadConfig read_mistral;
ReadConfig read_qwen2;
ReadConfig read_qwen3;
ReadConfig read_phi3;
ReadConfig read_gemma2;
ReadConfig read_gemma3;

}  // namespace llorch::model
