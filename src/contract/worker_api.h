// The small bodies of the worker's API beside /execute and OpenAI's, and those that every daemon
// has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/fields.h"
#include "contract/limits.h"

namespace llorch::contract {

// Ids of one /detokenize; far above any context.
inline constexpr std::size_t kDetokenizeIdsMax = std::size_t{1} << 20;

// POST /cancel.
struct CancelRequest {
  std::string job_id;
};
template <class V, Described<CancelRequest> T>
void describe(V& v, T& value) {
  v("job_id", value.job_id, {.must = true, .bytes = {1, kJobIdBytesMax}});
}

inline constexpr std::array<std::string_view, 1> kCancelling = {"cancelling"};
struct CancelAnswer {
  std::string job_id;
  std::string status{kCancelling[0]};
};
template <class V, Described<CancelAnswer> T>
void describe(V& v, T& value) {
  v("job_id", value.job_id);
  v("status", value.status, {.names = kCancelling});
}

// POST /shutdown.
struct ShutdownRequest {
  std::optional<std::int64_t> timeout_sec;
};
template <class V, Described<ShutdownRequest> T>
void describe(V& v, T& value) {
  v("timeout_sec", value.timeout_sec,
    {.min = 0,
     .max = kDrainSecondsMax,
     .doc = "How long what runs may go on; then it ends with an error. Default: until its own "
            "end."});
}

// Of every daemon that is asked to end.
inline constexpr std::array<std::string_view, 1> kDraining = {"draining"};
struct ShutdownAnswer {
  std::string status{kDraining[0]};
};
template <class V, Described<ShutdownAnswer> T>
void describe(V& v, T& value) {
  v("status", value.status, {.names = kDraining});
}

// POST /tokenize.
struct TokenizeRequest {
  std::string text;
  bool add_special = false;
  bool special = false;
  bool parse_special = false;
};
template <class V, Described<TokenizeRequest> T>
void describe(V& v, T& value) {
  v("text", value.text, {.must = true});
  v("add_special", value.add_special,
    {.doc = "The begin and end tokens that the model wants around a text."});
  v("special", value.special, {.doc = "Text like <|im_end|> is that token."});
  v("parse_special", value.parse_special, {.doc = "The same as special."});
}

struct TokenizeAnswer {
  std::vector<std::int32_t> tokens;
  std::vector<std::string> pieces;
  std::size_t count = 0;
};
template <class V, Described<TokenizeAnswer> T>
void describe(V& v, T& value) {
  v("tokens", value.tokens);
  v("pieces", value.pieces);
  v("count", value.count);
}

// POST /detokenize.
struct DetokenizeRequest {
  std::vector<std::int32_t> tokens;
};
template <class V, Described<DetokenizeRequest> T>
void describe(V& v, T& value) {
  v("tokens", value.tokens, {.must = true, .min = 0, .max_items = kDetokenizeIdsMax});
}

struct DetokenizeAnswer {
  std::string text;
};
template <class V, Described<DetokenizeAnswer> T>
void describe(V& v, T& value) {
  v("text", value.text);
}

}  // namespace llorch::contract
