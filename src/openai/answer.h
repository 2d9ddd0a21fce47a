// The objects of OpenAI's text endpoints, built as the choices of a request grow: chunks of a
// stream, or the whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "openai/answer_objects.h"
#include "openai/answer_parser.h"
#include "openai/generation.h"

namespace llorch::openai {

using Chunk = std::variant<Completion, ChatCompletionChunk>;

enum class AnswerKind : std::uint8_t { Completion, Chat };

// What all objects of one answer carry.
struct AnswerHead {
  AnswerKind kind = AnswerKind::Completion;
  std::string id;  // "chatcmpl-…", "cmpl-…"
  std::int64_t created = 0;
  std::string model;
  bool include_usage = false;
  bool with_logprobs = false;
  bool scores_prompt = false;  // the echo comes with its tokens
  std::size_t choices_per_prompt = 1;
  ParserSettings parser;  // of a chat's answers
  bool with_ids = false;  // chunks tell the ids of their tokens
  // What the ids of tool calls are made of. The same for the same request with the same seed, so
  // that an answer that goes on elsewhere goes on with the same; empty: the answer's id.
  std::string call_source = {};
};

// Fed with the events of all choices in their order. One thread at a time.
class Answer {
 public:
  // `echoes`: text in front of each choice, empty strings for none.
  Answer(AnswerHead head, std::vector<std::string> echoes);
  // The choice goes on with what was told elsewhere: its stream has no first chunk. Before the
  // first event.
  void set_resumed(std::size_t choice) { choices_[choice].is_resumed = true; }

  // The chunks that the event makes in a stream, as JSON texts. A failed result makes none: see
  // failure(). With ids, chunks that carry none (the first, those of text that was held back until
  // the end) come together with the next of their choice that does, or with its last.
  std::vector<std::string> chunks(GenerationEvent event);
  // The same for a whole answer: remembers.
  void take(GenerationEvent event);

  bool is_complete() const { return ended_ == choices_.size(); }
  // The first choice that failed: the whole answer fails with it.
  const std::optional<Error>& failure() const { return failure_; }

  json::Object whole() const;
  // The last chunk before [DONE], where the client asked for it.
  std::optional<std::string> usage_chunk() const;
  Usage usage() const;
  std::int64_t tokens_out() const;

 private:
  struct Choice {
    std::string echo;
    std::string text;
    std::string reasoning;
    std::vector<CallFunction> calls;
    std::unique_ptr<AnswerParser> parser;  // null: all text is content
    bool is_over = false;                  // what comes now is of no interest
    std::vector<TokenReport> tokens;       // in a stream: those that no chunk has told yet
    std::vector<std::size_t> offsets;      // of the tokens, in characters of the text
    std::size_t text_chars = 0;            // of the tokens so far
    bool has_echoed = false;               // in a stream, with the prompt's tokens
    bool is_resumed = false;
    std::vector<std::int32_t> ids;  // with ids: those that no chunk has told yet
    std::vector<Chunk> held;        // with ids: chunks without, until one has some
    std::int64_t prompt_tokens = 0;
    std::int64_t cached_tokens = 0;
    std::int64_t tokens_out = 0;
    std::string finish_reason;
    bool met_stop_text = false;
  };

  ObjectHead object_head() const;
  // With the log-probabilities of the tokens since the chunk before.
  Chunk text_chunk(std::size_t index, std::string text,
                   std::optional<std::string> finish_reason = {});
  Chunk chat_chunk(std::size_t index, ChatDelta delta,
                   std::optional<std::string> finish_reason = {});
  Chunk first_chunk(std::size_t index);
  void add_piece(std::size_t index, TextPiece piece, std::vector<Chunk>& out);
  // Reads what was told through the same parser; `remembers`: for a whole answer.
  void add_told(std::size_t index, ToldText told, bool remembers);
  // The chunks that may leave now, the ids in the last of them.
  static std::vector<Chunk> with_ids(Choice& choice, std::vector<Chunk> made, bool completes);
  void add_end(std::size_t index, std::vector<Chunk>& out);
  ChatDelta delta_of(std::size_t index, const AnswerPart& part) const;
  ChatMessage message_of(std::size_t index) const;
  json::Object whole_chat() const;
  json::Object whole_completion() const;
  // Keeps the tokens of a piece with their places in the text.
  static void keep_tokens(Choice& choice, std::vector<TokenReport> tokens, bool is_prompt);
  static void forget_tokens(Choice& choice);
  AnswerParts parse(Choice& choice, std::string_view text);
  // The answer is over for this choice: the rest of its parts.
  AnswerParts end_parts(Choice& choice);
  static void remember(Choice& choice, AnswerParts parts);
  // As many calls as were asked for: the choice ends here, whatever else it would say.
  void end_if_satisfied(Choice& choice);
  void note(std::size_t index, const contract::StartedEvent& started);
  void note(std::size_t index, const GenerationResult& result);

  AnswerHead head_;  // constant after construction
  std::vector<Choice> choices_;
  std::size_t ended_ = 0;
  std::optional<Error> failure_;
};

}  // namespace llorch::openai
