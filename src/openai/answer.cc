#include "openai/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/utf8.h"
#include "base/version.h"
#include "openai/tools.h"

namespace llorch::openai {
namespace {

std::string_view finish_reason_of(contract::StopReason reason) {
  return reason == contract::StopReason::MaxTokens ? "length" : "stop";
}

TokenLogprob logprob_of(const TokenProbability& token) {
  TokenLogprob out{token.text, token.logprob, {}};
  for (const char c : token.bytes) out.bytes.push_back(static_cast<unsigned char>(c));
  return out;
}

ChatLogprobs chat_logprobs(const std::vector<TokenReport>& tokens) {
  ChatLogprobs logprobs;
  for (const TokenReport& report : tokens) {
    ChosenToken& chosen = logprobs.content.emplace_back();
    chosen.token = logprob_of(report.token);
    for (const TokenProbability& other : report.top) chosen.top.push_back(logprob_of(other));
  }
  return logprobs;
}

// The chosen token is always among the top ones.
CompletionLogprobs completion_logprobs(const std::vector<TokenReport>& tokens,
                                       const std::vector<std::size_t>& places) {
  CompletionLogprobs logprobs;
  logprobs.text_offset = places;
  for (const TokenReport& report : tokens) {
    std::string text = base::to_valid_utf8(report.token.text);
    logprobs.tokens.push_back(text);
    std::optional<double>& logprob = logprobs.token_logprobs.emplace_back();
    auto& top = logprobs.top_logprobs.emplace_back();
    if (report.is_unscored) continue;
    logprob = report.token.logprob;
    top.emplace();
    for (const TokenProbability& other : report.top)
      top->emplace_back(base::to_valid_utf8(other.text), other.logprob);
    top->emplace_back(std::move(text), report.token.logprob);
  }
  return logprobs;
}

std::string text_of(const Chunk& chunk) {
  return std::visit([](const auto& one) { return json::serialize(contract::write_fields(one)); },
                    chunk);
}

}  // namespace

Answer::Answer(AnswerHead head, std::vector<std::string> echoes)
    : head_(std::move(head)), choices_(echoes.size()) {
  if (head_.call_source.empty()) head_.call_source = head_.id;
  for (std::size_t i = 0; i < echoes.size(); ++i) {
    choices_[i].echo = std::move(echoes[i]);
    if (head_.kind == AnswerKind::Chat && !head_.parser.is_idle())
      choices_[i].parser = std::make_unique<AnswerParser>(head_.parser);
  }
}

ObjectHead Answer::object_head() const {
  return {head_.id, head_.created, head_.model, fmt::format("llorch-{}", base::version())};
}

void Answer::keep_tokens(Choice& choice, std::vector<TokenReport> tokens, bool is_prompt) {
  if (tokens.empty()) return;
  // The answer begins where the echo ends, whatever its tokens say of their length: a tokenizer may
  // have normalised the text.
  if (!is_prompt) choice.text_chars = std::max(choice.text_chars, base::count_scalars(choice.echo));
  for (TokenReport& report : tokens) {
    choice.offsets.push_back(choice.text_chars);
    choice.text_chars += report.chars;
    choice.tokens.push_back(std::move(report));
  }
}

Chunk Answer::text_chunk(std::size_t index, std::string text,
                         std::optional<std::string> finish_reason) {
  Completion object{object_head(), {}, {}, {}};
  if (head_.include_usage) object.usage = nullptr;
  Choice& choice = choices_[index];
  CompletionChoice& only = object.choices.emplace_back();
  only.index = index;
  only.text = std::move(text);
  if (head_.with_logprobs && !choice.tokens.empty())
    only.logprobs = completion_logprobs(choice.tokens, choice.offsets);
  only.finish_reason = std::move(finish_reason);
  forget_tokens(choice);
  return object;
}

Chunk Answer::chat_chunk(std::size_t index, ChatDelta delta,
                         std::optional<std::string> finish_reason) {
  ChatCompletionChunk object{object_head(), {}, {}, {}};
  if (head_.include_usage) object.usage = nullptr;
  Choice& choice = choices_[index];
  ChunkChoice& only = object.choices.emplace_back();
  only.index = index;
  only.delta = std::move(delta);
  if (head_.with_logprobs && !choice.tokens.empty()) only.logprobs = chat_logprobs(choice.tokens);
  only.finish_reason = std::move(finish_reason);
  forget_tokens(choice);
  return object;
}

Chunk Answer::first_chunk(std::size_t index) {
  if (head_.kind == AnswerKind::Completion) return text_chunk(index, choices_[index].echo);
  ChatDelta delta;
  delta.role = kAssistantRole[0];
  delta.content = "";
  delta.refusal = nullptr;
  return chat_chunk(index, std::move(delta));
}

void Answer::note(std::size_t index, const contract::StartedEvent& started) {
  choices_[index].prompt_tokens = started.prompt_tokens;
  choices_[index].cached_tokens = started.cached_tokens;
}

void Answer::note(std::size_t index, const GenerationResult& result) {
  Choice& choice = choices_[index];
  ++ended_;
  choice.is_over = true;
  if (!result.ok()) {
    if (!failure_) failure_ = result.error();
    return;
  }
  choice.tokens_out = result->tokens_out;
  choice.prompt_tokens = result->prompt_tokens;
  choice.finish_reason = finish_reason_of(result->stop_reason);
  choice.met_stop_text = result->stop_reason == contract::StopReason::StopSequence;
}

AnswerParts Answer::parse(Choice& choice, std::string_view text) {
  if (choice.parser) return choice.parser->add(text);
  if (text.empty()) return {};
  return {{AnswerPart::Kind::Content, std::string(text), 0}};
}

AnswerParts Answer::end_parts(Choice& choice) {
  if (!choice.parser) return {};
  const bool is_torn = choice.met_stop_text && choice.parser->is_in_arguments();
  const bool was_cut = is_torn || choice.finish_reason == "length";
  AnswerParts parts = choice.parser->finish(was_cut);
  if (!was_cut && choice.parser->num_calls() > 0) choice.finish_reason = "tool_calls";
  return parts;
}

void Answer::end_if_satisfied(Choice& choice) {
  if (!choice.parser || !choice.parser->is_satisfied() || choice.is_over) return;
  choice.is_over = true;
  choice.finish_reason = "tool_calls";
  ++ended_;
}

void Answer::forget_tokens(Choice& choice) {
  choice.tokens.clear();
  choice.offsets.clear();
}

ChatDelta Answer::delta_of(std::size_t index, const AnswerPart& part) const {
  ChatDelta delta;
  switch (part.kind) {
    case AnswerPart::Kind::Content:
      delta.content = part.text;
      break;
    case AnswerPart::Kind::Reasoning:
      delta.reasoning = part.text;
      break;
    case AnswerPart::Kind::CallBegin: {
      CallPiece& call = delta.calls.emplace_back();
      call.index = part.call;
      call.id = call_id(head_.call_source, index, part.call, head_.parser.dialect);
      call.type = kFunctionType[0];
      call.function.name = part.text;
      break;
    }
    case AnswerPart::Kind::CallArguments: {
      CallPiece& call = delta.calls.emplace_back();
      call.index = part.call;
      call.function.arguments = part.text;
      break;
    }
  }
  return delta;
}

void Answer::add_piece(std::size_t index, TextPiece piece, std::vector<Chunk>& out) {
  Choice& choice = choices_[index];
  choice.tokens_out += static_cast<std::int64_t>(piece.ids.size());
  // The first report on a prompt brings all of its text.
  if (piece.is_prompt && !std::exchange(choice.has_echoed, true)) piece.text = choice.echo;
  keep_tokens(choice, std::move(piece.tokens), piece.is_prompt);
  if (head_.kind == AnswerKind::Completion) {
    out.push_back(text_chunk(index, std::move(piece.text)));
    return;
  }
  AnswerParts parts = parse(choice, piece.text);
  // Log-probabilities alone are told, too, where nobody may hold the text back.
  if (parts.empty() && !choice.parser) parts.push_back({AnswerPart::Kind::Content, "", 0});
  for (const AnswerPart& part : parts) out.push_back(chat_chunk(index, delta_of(index, part)));
  end_if_satisfied(choice);
  if (choice.is_over) add_end(index, out);
}

void Answer::add_end(std::size_t index, std::vector<Chunk>& out) {
  Choice& choice = choices_[index];
  for (const AnswerPart& part : end_parts(choice))
    out.push_back(chat_chunk(index, delta_of(index, part)));
  const bool is_chat = head_.kind == AnswerKind::Chat;
  out.push_back(is_chat ? chat_chunk(index, {}, choice.finish_reason)
                        : text_chunk(index, {}, choice.finish_reason));
}

void Answer::add_told(std::size_t index, ToldText told, bool remembers) {
  Choice& choice = choices_[index];
  for (TextPiece& piece : told.pieces) {
    if (choice.is_over) return;
    choice.tokens_out += static_cast<std::int64_t>(piece.ids.size());
    AnswerParts parts = parse(choice, piece.text);
    if (remembers) remember(choice, std::move(parts));
    keep_tokens(choice, std::move(piece.tokens), piece.is_prompt);
    // Their log-probabilities were told, too; what counts here is where the text has come to.
    forget_tokens(choice);
    end_if_satisfied(choice);
  }
}

std::vector<Chunk> Answer::with_ids(Choice& choice, std::vector<Chunk> made, bool completes) {
  std::move(made.begin(), made.end(), std::back_inserter(choice.held));
  if (!completes || choice.held.empty()) return {};
  if (!choice.ids.empty()) {
    std::visit([&choice](auto& last) { last.told = ChunkIds{std::exchange(choice.ids, {})}; },
               choice.held.back());
  }
  return std::exchange(choice.held, {});
}

std::vector<std::string> Answer::chunks(GenerationEvent event) {
  Choice& choice = choices_[event.choice];
  if (choice.is_over) return {};
  std::vector<Chunk> out;
  const auto note_ids = [&](const std::vector<std::int32_t>& ids) {
    if (head_.with_ids) choice.ids.insert(choice.ids.end(), ids.begin(), ids.end());
  };
  bool completes = false;
  if (const auto* started = std::get_if<contract::StartedEvent>(&event.what)) {
    note(event.choice, *started);
    const bool has_first =
        head_.kind == AnswerKind::Chat || (!choice.echo.empty() && !head_.scores_prompt);
    if (has_first && !choice.is_resumed) out.push_back(first_chunk(event.choice));
  } else if (auto* told = std::get_if<ToldText>(&event.what)) {
    add_told(event.choice, std::move(*told), false);
    // Whoever has its last ids has had its last chunk, too; who has not may want it.
    if (choice.is_over) add_end(event.choice, out);
  } else if (auto* piece = std::get_if<TextPiece>(&event.what)) {
    note_ids(piece->ids);
    completes = !piece->is_prompt && !piece->is_tail;
    add_piece(event.choice, std::move(*piece), out);
    completes = completes && !out.empty();
  } else {
    const auto& result = std::get<GenerationResult>(event.what);
    if (result.ok()) note_ids(result->ids);
    note(event.choice, result);
    if (!failure_) add_end(event.choice, out);
  }
  if (failure_) return {};
  if (head_.with_ids) out = with_ids(choice, std::move(out), completes || choice.is_over);
  std::vector<std::string> texts;
  for (const Chunk& chunk : out) texts.push_back(text_of(chunk));
  return texts;
}

void Answer::remember(Choice& choice, AnswerParts parts) {
  for (AnswerPart& part : parts) {
    switch (part.kind) {
      case AnswerPart::Kind::Content:
        choice.text += part.text;
        break;
      case AnswerPart::Kind::Reasoning:
        choice.reasoning += part.text;
        break;
      case AnswerPart::Kind::CallBegin:
        choice.calls.push_back({std::move(part.text), ""});
        break;
      case AnswerPart::Kind::CallArguments:
        choice.calls[part.call].arguments += part.text;
        break;
    }
  }
}

void Answer::take(GenerationEvent event) {
  Choice& choice = choices_[event.choice];
  if (choice.is_over) return;
  if (const auto* started = std::get_if<contract::StartedEvent>(&event.what)) {
    note(event.choice, *started);
  } else if (auto* told = std::get_if<ToldText>(&event.what)) {
    add_told(event.choice, std::move(*told), true);
  } else if (auto* piece = std::get_if<TextPiece>(&event.what)) {
    choice.tokens_out += static_cast<std::int64_t>(piece->ids.size());
    remember(choice, parse(choice, piece->text));
    keep_tokens(choice, std::move(piece->tokens), piece->is_prompt);
    end_if_satisfied(choice);
  } else {
    note(event.choice, std::get<GenerationResult>(event.what));
    remember(choice, end_parts(choice));
  }
}

ChatMessage Answer::message_of(std::size_t index) const {
  const Choice& choice = choices_[index];
  ChatMessage message;
  if (!choice.text.empty() || choice.calls.empty()) message.content = choice.text;
  message.reasoning = choice.reasoning;
  for (std::size_t i = 0; i < choice.calls.size(); ++i) {
    message.calls.push_back(
        {call_id(head_.call_source, index, i, head_.parser.dialect), choice.calls[i]});
  }
  return message;
}

json::Object Answer::whole() const {
  return head_.kind == AnswerKind::Chat ? whole_chat() : whole_completion();
}

json::Object Answer::whole_chat() const {
  ChatCompletion object{object_head(), {}, usage()};
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    ChatChoice& made = object.choices.emplace_back();
    made.index = i;
    made.message = message_of(i);
    if (head_.with_logprobs) made.logprobs = chat_logprobs(choice.tokens);
    made.finish_reason = choice.finish_reason;
  }
  return contract::write_fields(object);
}

json::Object Answer::whole_completion() const {
  Completion object{object_head(), {}, usage(), {}};
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    CompletionChoice& made = object.choices.emplace_back();
    made.index = i;
    made.text = choice.echo + choice.text;
    if (head_.with_logprobs) made.logprobs = completion_logprobs(choice.tokens, choice.offsets);
    made.finish_reason = choice.finish_reason;
  }
  return contract::write_fields(object);
}

std::int64_t Answer::tokens_out() const {
  std::int64_t total = 0;
  for (const Choice& choice : choices_) total += choice.tokens_out;
  return total;
}

// A prompt counts once, however many choices were made from it.
Usage Answer::usage() const {
  Usage usage;
  for (std::size_t i = 0; i < choices_.size(); i += head_.choices_per_prompt) {
    usage.prompt_tokens += choices_[i].prompt_tokens;
    usage.prompt.cached_tokens += choices_[i].cached_tokens;
  }
  usage.completion_tokens = tokens_out();
  return usage;
}

std::optional<std::string> Answer::usage_chunk() const {
  if (!head_.include_usage) return std::nullopt;
  if (head_.kind == AnswerKind::Chat)
    return text_of(ChatCompletionChunk{object_head(), {}, usage(), {}});
  return text_of(Completion{object_head(), {}, usage(), {}});
}

}  // namespace llorch::openai
