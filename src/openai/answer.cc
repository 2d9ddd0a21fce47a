#include "openai/answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

json::Array bytes_json(std::string_view bytes) {
  json::Array array;
  for (const char c : bytes) array.push_back(static_cast<unsigned char>(c));
  return array;
}

json::Object probability_json(const TokenProbability& token) {
  return {{"token", base::to_valid_utf8(token.text)},
          {"logprob", token.logprob},
          {"bytes", bytes_json(token.bytes)}};
}

json::Object chat_logprobs(const std::vector<TokenReport>& tokens) {
  json::Array content;
  for (const TokenReport& report : tokens) {
    json::Object entry = probability_json(report.token);
    json::Array top;
    for (const TokenProbability& other : report.top) top.push_back(probability_json(other));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// The older style: four lists side by side. The chosen token is always among the top ones.
json::Object completion_logprobs(const std::vector<TokenReport>& tokens,
                                 const std::vector<std::size_t>& places) {
  json::Array texts;
  json::Array logprobs;
  json::Array tops;
  json::Array offsets(places.begin(), places.end());
  for (const TokenReport& report : tokens) {
    const std::string text = base::to_valid_utf8(report.token.text);
    texts.emplace_back(text);
    if (report.is_unscored) {
      logprobs.emplace_back(nullptr);
      tops.emplace_back(nullptr);
      continue;
    }
    json::Object top;
    for (const TokenProbability& other : report.top)
      top[base::to_valid_utf8(other.text)] = other.logprob;
    top[text] = report.token.logprob;
    logprobs.push_back(report.token.logprob);
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
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

json::Object Answer::head_json(std::string_view object) const {
  return {{"id", head_.id},
          {"object", object},
          {"created", head_.created},
          {"model", head_.model},
          {"system_fingerprint", fmt::format("llorch-{}", base::version())}};
}

json::Value Answer::logprobs_json(const Choice& choice) const {
  if (!head_.with_logprobs) return nullptr;
  if (head_.kind == AnswerKind::Chat) return chat_logprobs(choice.tokens);
  return completion_logprobs(choice.tokens, choice.offsets);
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

std::string Answer::chunk(std::size_t index, json::Value delta, json::Value logprobs,
                          json::Value finish_reason) const {
  const bool is_chat = head_.kind == AnswerKind::Chat;
  json::Object choice{{"index", index}};
  choice[is_chat ? "delta" : "text"] = std::move(delta);
  choice["logprobs"] = std::move(logprobs);
  choice["finish_reason"] = std::move(finish_reason);
  json::Object object = head_json(is_chat ? "chat.completion.chunk" : "text_completion");
  object["choices"] = json::Array{std::move(choice)};
  if (head_.include_usage) object["usage"] = nullptr;
  return json::serialize(object);
}

std::string Answer::first_chunk(std::size_t index) const {
  if (head_.kind == AnswerKind::Chat) {
    json::Object delta{{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}};
    return chunk(index, std::move(delta), nullptr, nullptr);
  }
  return chunk(index, json::Value(choices_[index].echo), nullptr, nullptr);
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
}

AnswerParts Answer::parse(Choice& choice, std::string_view text) {
  if (choice.parser) return choice.parser->add(text);
  if (text.empty()) return {};
  return {{AnswerPart::Kind::Content, std::string(text), 0}};
}

AnswerParts Answer::end_parts(Choice& choice) {
  if (!choice.parser) return {};
  const bool was_cut = choice.finish_reason == "length";
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

json::Value Answer::take_logprobs(Choice& choice) const {
  if (choice.tokens.empty()) return nullptr;
  json::Value logprobs = logprobs_json(choice);
  choice.tokens.clear();
  choice.offsets.clear();
  return logprobs;
}

json::Object Answer::delta_of(std::size_t index, const AnswerPart& part) const {
  switch (part.kind) {
    case AnswerPart::Kind::Content:
      return {{"content", part.text}};
    case AnswerPart::Kind::Reasoning:
      return {{"reasoning_content", part.text}};
    case AnswerPart::Kind::CallBegin: {
      json::Object call{{"index", part.call},
                        {"id", call_id(head_.call_source, index, part.call, head_.parser.dialect)},
                        {"type", "function"},
                        {"function", json::Object{{"name", part.text}, {"arguments", ""}}}};
      return {{"tool_calls", json::Array{std::move(call)}}};
    }
    case AnswerPart::Kind::CallArguments: {
      json::Object call{{"index", part.call}, {"function", json::Object{{"arguments", part.text}}}};
      return {{"tool_calls", json::Array{std::move(call)}}};
    }
  }
  return {};
}

void Answer::add_piece(std::size_t index, TextPiece piece, std::vector<std::string>& out) {
  Choice& choice = choices_[index];
  choice.tokens_out += static_cast<std::int64_t>(piece.ids.size());
  // The first report on a prompt brings all of its text.
  if (piece.is_prompt && !std::exchange(choice.has_echoed, true)) piece.text = choice.echo;
  keep_tokens(choice, std::move(piece.tokens), piece.is_prompt);
  if (head_.kind == AnswerKind::Completion) {
    out.push_back(chunk(index, json::Value(piece.text), take_logprobs(choice), nullptr));
    return;
  }
  AnswerParts parts = parse(choice, piece.text);
  // Log-probabilities alone are told, too, where nobody may hold the text back.
  if (parts.empty() && !choice.parser) parts.push_back({AnswerPart::Kind::Content, "", 0});
  for (const AnswerPart& part : parts)
    out.push_back(chunk(index, delta_of(index, part), take_logprobs(choice), nullptr));
  end_if_satisfied(choice);
  if (choice.is_over) add_end(index, out);
}

void Answer::add_end(std::size_t index, std::vector<std::string>& out) {
  Choice& choice = choices_[index];
  for (const AnswerPart& part : end_parts(choice))
    out.push_back(chunk(index, delta_of(index, part), take_logprobs(choice), nullptr));
  json::Value delta = head_.kind == AnswerKind::Chat ? json::Value(json::Object()) : "";
  out.push_back(
      chunk(index, std::move(delta), take_logprobs(choice), json::Value(choice.finish_reason)));
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
    choice.tokens.clear();
    choice.offsets.clear();
    end_if_satisfied(choice);
  }
}

std::vector<std::string> Answer::with_ids(Choice& choice, std::vector<std::string> made,
                                          bool completes) {
  std::move(made.begin(), made.end(), std::back_inserter(choice.held));
  if (!completes || choice.held.empty()) return {};
  if (!choice.ids.empty()) {
    // The last member of the object, in these very bytes: relays look for them from behind.
    std::string& last = choice.held.back();
    last.pop_back();
    last += fmt::format(",\"llorch\":{{\"ids\":[{}]}}}}", fmt::join(choice.ids, ","));
    choice.ids.clear();
  }
  return std::exchange(choice.held, {});
}

std::vector<std::string> Answer::chunks(GenerationEvent event) {
  Choice& choice = choices_[event.choice];
  std::vector<std::string> out;
  if (choice.is_over) return out;
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
  return head_.with_ids ? with_ids(choice, std::move(out), completes || choice.is_over) : out;
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

json::Object Answer::message_of(std::size_t index) const {
  const Choice& choice = choices_[index];
  json::Object message{{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
  if (choice.calls.empty()) return message;
  if (choice.text.empty()) message["content"] = nullptr;
  json::Array calls;
  for (std::size_t i = 0; i < choice.calls.size(); ++i) {
    const Call& call = choice.calls[i];
    calls.push_back(json::Object{
        {"id", call_id(head_.call_source, index, i, head_.parser.dialect)},
        {"type", "function"},
        {"function", json::Object{{"name", call.name}, {"arguments", call.arguments}}}});
  }
  message["tool_calls"] = std::move(calls);
  return message;
}

json::Object Answer::whole() const {
  const bool is_chat = head_.kind == AnswerKind::Chat;
  json::Array list;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    json::Object entry{{"index", i}};
    if (is_chat) {
      entry["message"] = message_of(i);
    } else {
      entry["text"] = choice.echo + choice.text;
    }
    entry["logprobs"] = logprobs_json(choice);
    entry["finish_reason"] = choice.finish_reason;
    list.push_back(std::move(entry));
  }
  json::Object object = head_json(is_chat ? "chat.completion" : "text_completion");
  object["choices"] = std::move(list);
  object["usage"] = usage();
  return object;
}

std::int64_t Answer::tokens_out() const {
  std::int64_t total = 0;
  for (const Choice& choice : choices_) total += choice.tokens_out;
  return total;
}

// A prompt counts once, however many choices were made from it.
json::Object Answer::usage() const {
  std::int64_t prompt = 0;
  std::int64_t cached = 0;
  for (std::size_t i = 0; i < choices_.size(); i += head_.choices_per_prompt) {
    prompt += choices_[i].prompt_tokens;
    cached += choices_[i].cached_tokens;
  }
  const std::int64_t completion = tokens_out();
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", json::Object{{"cached_tokens", cached}}}};
}

std::optional<std::string> Answer::usage_chunk() const {
  if (!head_.include_usage) return std::nullopt;
  json::Object object =
      head_json(head_.kind == AnswerKind::Chat ? "chat.completion.chunk" : "text_completion");
  object["choices"] = json::Array();
  object["usage"] = usage();
  return json::serialize(object);
}

}  // namespace llorch::openai
