// What goes into a model and what comes back from it, as OpenAI's bodies and answers need it: the
// seam between these codecs and whatever computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/text_span.h"
#include "contract/inference.h"
#include "contract/sampling_config.h"

namespace llorch::openai {

// What the output must be; enforced while sampling.
struct OutputFormat {
  enum class Kind : std::uint8_t { Text, JsonObject, JsonSchema, ToolCalls };
  Kind kind = Kind::Text;
  json::Value schema;  // with JsonSchema
  // With ToolCalls: one of these; where `between` is not empty maybe more, with it in between, up
  // to `max_calls`; then `closing`.
  struct Call {
    std::string before;  // the arguments
    json::Value schema;  // of the arguments
    std::string after;
    bool strict = false;  // else arguments whose schema cannot be enforced are any object
  };
  std::vector<Call> calls;
  std::string between;
  std::string closing;
  std::uint32_t max_calls = 1;
};

// Text as users write it (special tokens in it are plain text), a rendered chat prompt (special
// tokens count where the template itself wrote them), or ids.
struct Prompt {
  enum class Kind : std::uint8_t { Plain, Rendered, Ids };
  Kind kind = Kind::Plain;
  std::string text;
  std::vector<base::TextSpan> template_spans;  // of a rendered one: what is not users' text
  std::vector<std::int32_t> ids;
  // What follows the answer; with text as users write it, or ids.
  std::optional<std::string> suffix;
};

// Everything about a generation but its prompt.
struct GenerationSettings {
  contract::SamplingConfig sampling;
  // A max_tokens above what is left of the context is lowered to it instead of refused: for
  // defaults, which nobody asked for.
  bool shorten_to_fit = false;
  // OpenAI's further parameters.
  float frequency_penalty = 0;
  float presence_penalty = 0;
  std::vector<std::pair<std::int32_t, float>> logit_bias;
  std::optional<std::int32_t> top_logprobs;
  // With top_logprobs: the prompt's tokens are reported, too. Not when the answer goes on.
  bool score_prompt = false;
  OutputFormat format;
  // Special tokens that are markers of the model's style (AnswerStyle) are part of the text.
  bool shows_markers = false;
};

struct TokenProbability {
  std::string text;   // of the one token; may be part of a character, then with U+FFFD
  std::string bytes;  // as they are
  float logprob = 0;
};

struct TokenReport {
  TokenProbability token;
  std::vector<TokenProbability> top;
  std::size_t chars = 0;     // by which it lengthens the text
  bool is_unscored = false;  // the first of a prompt: nothing is before it to judge it by
};

// A piece of the answer: whole UTF-8, certain not to belong to a stop string. With logprobs, the
// tokens since the last piece; a piece may then have no text.
struct TextPiece {
  std::string text;
  std::vector<TokenReport> tokens;
  std::vector<std::int32_t> ids = {};  // of the output, since the last piece
  bool is_prompt = false;  // reports on the prompt's tokens, before any of the answer; no text
  // The last one: it was held back, and is text because nothing more comes.
  bool is_tail = false;
};

// What a generation had said before it came here, in its pieces. It counts as said: nobody is to
// hear of it again.
struct ToldText {
  std::vector<TextPiece> pieces;
};

using GenerationResult = Result<contract::InferenceResult>;

// What one of the choices of a request has to tell.
struct GenerationEvent {
  std::size_t choice = 0;
  std::variant<contract::StartedEvent, ToldText, TextPiece, GenerationResult> what;
};

}  // namespace llorch::openai
