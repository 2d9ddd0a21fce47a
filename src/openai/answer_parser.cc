#include "openai/answer_parser.h"

#include <algorithm>
#include <array>
#include <utility>

namespace llorch::openai {
namespace {

using Kind = AnswerPart::Kind;

constexpr std::size_t kMaxHead = std::size_t{8} << 10;       // bytes until a call is believed
constexpr std::size_t kMaxHeldSpace = 256;                   // whitespace in front of a marker
constexpr std::size_t kMaxHeldText = std::size_t{64} << 10;  // arguments within a string

// Whitespace right before `end`, as far as it is held back.
std::size_t space_before(std::string_view text, std::size_t end) {
  std::size_t count = 0;
  while (count < std::min(end, kMaxHeldSpace) && is_json_space(text[end - count - 1])) ++count;
  return count;
}

// The longest end of `text` that is a beginning of `marker`, but not all of it.
std::size_t partial_at_end(std::string_view text, std::string_view marker) {
  for (std::size_t size = std::min(text.size(), marker.size() - 1); size > 0; --size) {
    if (text.ends_with(marker.substr(0, size))) return size;
  }
  return 0;
}

struct Found {
  std::size_t at = std::string_view::npos;
  std::string_view marker;
  std::size_t partial = 0;  // where none is found: what may become one
  bool is_found() const { return at != std::string_view::npos; }
};

// The first of several markers; of those that begin together the longest.
template <typename Markers>
Found find_first(std::string_view text, const Markers& markers) {
  Found found;
  for (const std::string_view marker : markers) {
    const std::size_t at = text.find(marker);
    if (at < found.at ||
        (at == found.at && at != std::string_view::npos && marker.size() > found.marker.size())) {
      found.at = at;
      found.marker = marker;
    }
    found.partial = std::max(found.partial, partial_at_end(text, marker));
  }
  return found;
}

}  // namespace

AnswerParser::AnswerParser(ParserSettings settings)
    : settings_(std::move(settings)),
      syntax_(settings_.looks_for_calls() ? call_syntax(settings_.dialect) : CallSyntax{}) {
  if (settings_.begins_thinking) {
    state_ = State::Thinking;
    strips_space_ = true;
  }
  const bool speaks_harmony =
      settings_.thinking == ThinkingStyle::Harmony ||
      (settings_.looks_for_calls() && settings_.dialect == ToolDialect::Harmony);
  if (speaks_harmony) state_ = State::Message;
  if (settings_.opening.empty()) return;
  if (!speaks_harmony) state_ = State::Text;
  opening_is_prompt_ = true;
  buffer_ = settings_.opening;
  run();
}

AnswerParts AnswerParser::add(std::string_view text) {
  buffer_ += text;
  run();
  return std::exchange(parts_, {});
}

AnswerParts AnswerParser::finish(bool was_cut) {
  is_final_ = true;
  was_cut_ = was_cut;
  run();
  return std::exchange(parts_, {});
}

void AnswerParser::run() {
  bool moves = true;
  while (moves) {
    switch (state_) {
      case State::Start:
        moves = step_start();
        break;
      case State::Thinking:
        moves = step_thinking();
        break;
      case State::Text:
        moves = step_text();
        break;
      case State::Head:
        moves = step_head();
        break;
      case State::Arguments:
        moves = step_arguments();
        break;
      case State::Tail:
        moves = step_tail();
        break;
      case State::Xml:
        moves = step_xml();
        break;
      case State::After:
        moves = step_after();
        break;
      case State::Message:
        moves = step_message();
        break;
      case State::Done:
        buffer_.clear();
        moves = false;
        break;
    }
  }
}

void AnswerParser::emit(Kind kind, std::string_view text) {
  if (text.empty()) return;
  // Half a frame, where the answer was cut between two calls.
  if (settings_.calls_only && kind == Kind::Content && num_calls_ > 0) return;
  const std::size_t call = num_calls_ > 0 && kind == Kind::CallArguments ? num_calls_ - 1 : 0;
  if (!parts_.empty() && parts_.back().kind == kind && parts_.back().call == call) {
    parts_.back().text += text;
  } else {
    parts_.push_back({kind, std::string(text), call});
  }
}

void AnswerParser::emit_front(Kind kind, std::size_t bytes) {
  emit(kind, std::string_view(buffer_).substr(0, bytes));
  drop_front(bytes);
}

bool AnswerParser::is_known(std::string_view name) const {
  return std::any_of(settings_.tools->begin(), settings_.tools->end(),
                     [&](const ToolSpec& tool) { return tool.name == name; });
}

bool AnswerParser::is_special(std::string_view marker) const {
  const std::vector<std::string>& markers = settings_.special_markers;
  return std::find(markers.begin(), markers.end(), marker) != markers.end();
}

bool AnswerParser::step_start() {
  const std::string_view open = thinking_markers(settings_.thinking).open;
  const std::size_t space = count_space(buffer_);
  const std::string_view rest = std::string_view(buffer_).substr(space);
  state_ = State::Text;
  if (open.empty()) return true;
  if (rest.starts_with(open)) {
    drop_front(space + open.size());
    state_ = State::Thinking;
    strips_space_ = true;
    return true;
  }
  if (!is_final_ && open.starts_with(rest)) {
    state_ = State::Start;
    return false;
  }
  return true;
}

bool AnswerParser::step_thinking() {
  const ThinkingMarkers markers = thinking_markers(settings_.thinking);
  if (strips_space_) {
    drop_front(count_space(buffer_));
    // Some models open again what the prompt has opened.
    if (std::string_view(buffer_).starts_with(markers.open)) {
      drop_front(markers.open.size());
      return true;
    }
    if (!is_final_ && markers.open.starts_with(buffer_)) return false;
    strips_space_ = false;
  }
  const Found close = find_first(buffer_, std::array{markers.close});
  if (close.is_found()) {
    emit_front(Kind::Reasoning, close.at - space_before(buffer_, close.at));
    drop_front(count_space(buffer_) + close.marker.size());
    state_ = State::Text;
    strips_space_ = true;
    return true;
  }
  std::size_t ready = buffer_.size();
  if (!is_final_) {
    ready -= close.partial;
    ready -= space_before(buffer_, ready);
  }
  emit_front(Kind::Reasoning, ready);
  return false;
}

void AnswerParser::begin_head(std::size_t lead, std::string_view opening) {
  lead_ = lead;
  opening_ = opening;
  state_ = State::Head;
}

bool AnswerParser::begin_bare_head() {
  const std::size_t space = count_space(buffer_);
  if (space == buffer_.size() || space > kMaxHeldSpace) return false;
  if (buffer_[space] != '{' && buffer_[space] != '[') return false;
  begin_head(space, "");
  return true;
}

bool AnswerParser::step_text() {
  if (strips_space_) {
    drop_front(count_space(buffer_));
    if (buffer_.empty()) return false;
    strips_space_ = false;
  }
  if (syntax_.is_bare && is_fresh_ && begin_bare_head()) return true;
  Found open = find_first(buffer_, syntax_.openings);
  if (syntax_.has_fences) {
    const std::size_t space = count_space(buffer_);
    const bool is_first = is_fresh_ && space <= kMaxHeldSpace;
    if (!is_first || (open.is_found() && open.at != space)) open = {};
    if (open.partial + space < buffer_.size()) open.partial = 0;
  }
  const Found special = find_first(buffer_, settings_.special_markers);
  if (special.is_found() && (!open.is_found() || special.at < open.at)) {
    if (special.at > 0) is_fresh_ = false;
    emit_front(Kind::Content, special.at);
    drop_front(special.marker.size());
    return true;
  }
  if (open.is_found()) {
    const std::size_t space = space_before(buffer_, open.at);
    if (open.at > space) is_fresh_ = false;
    emit_front(Kind::Content, open.at - space);
    begin_head(space + open.marker.size(), open.marker);
    return true;
  }
  std::size_t ready = buffer_.size();
  if (!is_final_) {
    ready -= std::max(open.partial, special.partial);
    const bool may_come = !syntax_.openings.empty() && (!syntax_.has_fences || is_fresh_);
    if (may_come) ready -= space_before(buffer_, ready);
  }
  if (ready > 0) is_fresh_ = false;
  emit_front(Kind::Content, ready);
  return false;
}

// It is none: the opening is text like any other, and what follows is looked at again.
void AnswerParser::refuse_head() {
  state_ = State::Text;
  in_list_ = false;
  if (opening_.empty()) {
    emit_front(Kind::Content, lead_ + 1);
  } else if (opening_is_prompt_) {
    drop_front(settings_.opening.size());
  } else if (is_special(opening_)) {
    const std::size_t space = lead_ - opening_.size();
    buffer_.erase(space, opening_.size());
  } else {
    emit_front(Kind::Content, lead_);
  }
  opening_is_prompt_ = false;
  is_fresh_ = false;
}

bool AnswerParser::step_head() {
  const std::string_view text = std::string_view(buffer_).substr(lead_, kMaxHead);
  CallHead head = read_call_head(text, settings_.dialect, opening_);
  const bool must_know = opening_.empty() ? !in_list_ : syntax_.has_fences;
  if (head.status == CallHead::Status::Unfinished) {
    if (!is_final_ && text.size() < kMaxHead) return false;
    const bool is_cut_call = was_cut_ && !head.name.empty() && is_known(head.name);
    if (!is_cut_call) {
      refuse_head();
      return true;
    }
    head.status = CallHead::Status::Call;
    head.kind = CallHead::Arguments::Follow;
    head.end = text.size();
  }
  const bool is_call = head.status == CallHead::Status::Call &&
                       (!must_know || is_known(head.name)) && num_calls_ < settings_.max_calls;
  if (is_call) {
    begin_call(head);
  } else {
    refuse_head();
  }
  return true;
}

void AnswerParser::begin_call(const CallHead& head) {
  drop_front(lead_ + head.end);
  opening_is_prompt_ = false;
  is_fresh_ = false;
  in_list_ = in_list_ || head.in_list;
  in_object_ = head.in_object;
  call_name_ = head.name;
  parts_.push_back({Kind::CallBegin, head.name, num_calls_});
  ++num_calls_;
  scanner_ = {};
  began_value_ = false;
  searched_ = 0;
  num_xml_ = 0;
  if (head.kind == CallHead::Arguments::Known) {
    emit(Kind::CallArguments, head.arguments);
    end_call(State::After);
  } else {
    state_ = head.kind == CallHead::Arguments::Xml ? State::Xml : State::Arguments;
  }
}

void AnswerParser::end_call(State next) {
  state_ = num_calls_ >= settings_.max_calls ? State::Done : next;
}

// An object as it comes; a text that holds the JSON, or a word, when it is whole.
bool AnswerParser::step_arguments() {
  if (buffer_.empty()) return false;
  const State next = in_object_ ? State::Tail : State::After;
  if (began_value_ || buffer_[0] == '{' || buffer_[0] == '[') {
    began_value_ = true;
    emit_front(Kind::CallArguments, scanner_.take(buffer_));
    if (scanner_.done()) end_call(next);
    return scanner_.done();
  }
  const std::string_view front = std::string_view(buffer_).substr(0, kMaxHeldText);
  JsonCursor cursor(front, 0);
  std::string decoded;
  const bool is_text = buffer_[0] == '"';
  const Scan scan = is_text ? cursor.read_string(decoded) : cursor.skip_value();
  if (scan == Scan::Unfinished && !is_final_ && front.size() < kMaxHeldText) return false;
  const std::string_view raw = front.substr(0, cursor.at());
  if (scan == Scan::Whole && raw == "null") {
    emit(Kind::CallArguments, "{}");
  } else if (scan == Scan::Whole) {
    emit(Kind::CallArguments, is_text ? std::string_view(decoded) : raw);
  } else if (scan == Scan::Unfinished) {
    emit_front(Kind::CallArguments, front.size());
    end_call(State::After);
    return true;
  }
  drop_front(cursor.at());
  end_call(scan == Scan::Whole ? next : State::After);
  return true;
}

// Further members, the closing brace. What does not look so is no part of the call.
bool AnswerParser::step_tail() {
  const std::string_view text = std::string_view(buffer_).substr(0, kMaxHead);
  JsonCursor cursor(text, 0);
  Scan scan = cursor.take('}');
  while (scan == Scan::Broken && cursor.take(',') == Scan::Whole) {
    std::string key;
    cursor.skip_space();
    scan = cursor.read_string(key);
    if (scan == Scan::Whole) scan = cursor.take(':');
    cursor.skip_space();
    if (scan == Scan::Whole) scan = cursor.skip_value();
    if (scan != Scan::Whole) break;
    scan = cursor.take('}');
  }
  if (scan == Scan::Unfinished && !is_final_ && text.size() < kMaxHead) return false;
  if (scan == Scan::Whole) drop_front(cursor.at());
  state_ = State::After;
  return true;
}

// One more of a list, its end, or something else.
bool AnswerParser::step_list() {
  const std::size_t space = count_space(buffer_);
  if (space == buffer_.size()) return false;
  if (buffer_[space] == ',') {
    const std::size_t more = space + 1 + count_space(buffer_, space + 1);
    if (more == buffer_.size() && !is_final_) return false;
    if (more < buffer_.size() && buffer_[more] == '{') {
      begin_head(more, "");
      return true;
    }
  }
  if (buffer_[space] == ']') drop_front(space + 1);
  in_list_ = false;
  return true;
}

bool AnswerParser::step_after() {
  if (in_list_ && step_list()) return true;
  const std::size_t space = count_space(buffer_);
  const std::string_view rest = std::string_view(buffer_).substr(space);
  if (rest.empty()) {
    if (is_final_) buffer_.clear();
    return false;
  }
  if (in_list_) return false;
  for (const std::string_view closing : syntax_.closings) {
    if (rest.starts_with(closing)) {
      drop_front(space + closing.size());
      return true;
    }
    if (!is_final_ && closing.starts_with(rest)) return false;
  }
  if (syntax_.is_bare) {  // the next one, maybe after a separator
    const bool has_separator = rest[0] == ';' || rest[0] == ',';
    const std::size_t more = space + (has_separator ? 1 + count_space(rest, 1) : 0);
    if (more == buffer_.size() && !is_final_) return false;
    if (more < buffer_.size() && buffer_[more] == '{') {
      begin_head(more, "");
      return true;
    }
  }
  state_ = State::Text;
  return true;
}

}  // namespace llorch::openai
