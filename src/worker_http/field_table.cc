#include "worker_http/field_table.h"

#include <array>

namespace llorch::worker_http {
namespace {

using enum Treatment;

constexpr std::array kExecute = {
    FieldSpec{"job_id", Required,
              R"({"type":"string","minLength":1,"maxLength":256,"pattern":"^[A-Za-z0-9._-]+$"})"},
    FieldSpec{"prompt", Required, R"({"type":"string","minLength":1,"maxLength":131072})"},
    FieldSpec{
        "max_tokens", Honoured,
        R"({"type":"integer","minimum":1,"description":"Default: the rest of the context."})"},
    FieldSpec{
        "temperature", Honoured,
        R"({"type":"number","minimum":0,"maximum":2,"default":1,"description":"0 is greedy."})"},
    FieldSpec{"top_p", Honoured, R"({"type":"number","minimum":0,"maximum":1,"default":1})"},
    FieldSpec{"min_p", Honoured, R"({"type":"number","minimum":0,"maximum":1,"default":0})"},
    FieldSpec{"top_k", Honoured,
              R"({"type":"integer","minimum":0,"default":0,"description":"0 is off."})"},
    FieldSpec{"repetition_penalty", Honoured,
              R"({"type":"number","exclusiveMinimum":0,"maximum":2,"default":1})"},
    FieldSpec{
        "stop", Honoured,
        R"({"type":"array","maxItems":4,"items":{"type":"string","minLength":1,"maxLength":100}})"},
    FieldSpec{"seed", Honoured,
              R"({"type":"integer","minimum":0,"description":"Default: drawn and reported."})"},
};

constexpr std::array kCancel = {FieldSpec{"job_id", Required, R"({"type":"string"})"}};

constexpr std::array kShutdown = {FieldSpec{
    "timeout_sec", Honoured,
    R"({"type":"integer","minimum":0,"maximum":3600,"description":"How long what runs may go on; then it ends with an error. Default: until its own end."})"}};

constexpr std::array kTokenize = {
    FieldSpec{"text", Required, R"({"type":"string"})"},
    FieldSpec{
        "add_special", Honoured,
        R"({"type":"boolean","default":false,"description":"The begin and end tokens that the model wants around a text."})"},
    FieldSpec{
        "special", Honoured,
        R"({"type":"boolean","default":false,"description":"Text like <|im_end|> is that token."})"},
    FieldSpec{"parse_special", Honoured,
              R"({"type":"boolean","default":false,"description":"The same as special."})"},
};

constexpr std::array kDetokenize = {
    FieldSpec{"tokens", Required, R"({"type":"array","items":{"type":"integer","minimum":0}})"}};

}  // namespace

std::span<const FieldSpec> execute_fields() {
  return kExecute;
}
std::span<const FieldSpec> cancel_fields() {
  return kCancel;
}
std::span<const FieldSpec> shutdown_fields() {
  return kShutdown;
}
std::span<const FieldSpec> tokenize_fields() {
  return kTokenize;
}
std::span<const FieldSpec> detokenize_fields() {
  return kDetokenize;
}

}  // namespace llorch::worker_http
