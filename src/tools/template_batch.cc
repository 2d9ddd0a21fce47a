#include "tools/template_batch.h"

#include <fmt/format.h>

#include <charconv>
#include <istream>
#include <ostream>
#include <string>
#include <utility>

#include "base/json.h"
#include "template/chat_template.h"

namespace llorch::tools {
namespace {

// Reads exactly `digits` decimal digits at `at`.
std::optional<int> number_at(std::string_view text, std::size_t at, std::size_t digits) {
  if (text.size() < at + digits) return std::nullopt;
  int value = 0;
  const char* end = text.data() + at + digits;
  const auto parsed = std::from_chars(text.data() + at, end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || text[at] == '-') return std::nullopt;
  return value;
}

// The template inside a tokenizer_config.json: a string, or a list of named ones of which "default"
// is meant. Nothing where the text is no such file.
std::optional<std::string> template_of_config(std::string_view source) {
  if (source.empty() || source[0] != '{') return std::nullopt;
  const Result<json::Value> config = json::parse(source);
  if (!config.ok() || !config->is_object()) return std::nullopt;
  const json::Value* found = config->get_object().if_contains("chat_template");
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) return std::string(json::view(found->get_string()));
  if (!found->is_array()) return std::nullopt;
  for (const json::Value& entry : found->get_array()) {
    if (!entry.is_object()) continue;
    const json::Value* name = entry.get_object().if_contains("name");
    const json::Value* text = entry.get_object().if_contains("template");
    const bool is_default = name != nullptr && name->is_string() && name->get_string() == "default";
    if (is_default && text != nullptr && text->is_string()) {
      return std::string(json::view(text->get_string()));
    }
  }
  return std::nullopt;
}

Result<std::string> render_line(const jinja::ChatTemplate& chat_template, std::string_view line,
                                const jinja::RenderOptions& options) {
  const Result<json::Value> context = json::parse(line);
  if (!context.ok()) return context.error();
  Result<jinja::MarkedText> rendered = chat_template.render(*context, options);
  if (!rendered.ok()) return rendered.error();
  return std::move(rendered->text);
}

}  // namespace

Result<std::chrono::local_seconds> parse_date(std::string_view text) {
  const Error bad{ErrorCode::InvalidArgument,
                  fmt::format("date '{}': expected YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS", text)};
  const bool has_time = text.size() == 19 && text[10] == 'T' && text[13] == ':' && text[16] == ':';
  if ((text.size() != 10 && !has_time) || text[4] != '-' || text[7] != '-') return bad;
  const std::optional<int> year = number_at(text, 0, 4);
  const std::optional<int> month = number_at(text, 5, 2);
  const std::optional<int> day = number_at(text, 8, 2);
  if (!year || !month || !day) return bad;
  const std::chrono::year_month_day date(std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok()) return bad;
  std::chrono::local_seconds time{std::chrono::local_days(date)};
  if (!has_time) return time;
  const std::optional<int> hour = number_at(text, 11, 2);
  const std::optional<int> minute = number_at(text, 14, 2);
  const std::optional<int> second = number_at(text, 17, 2);
  if (!hour || !minute || !second || *hour > 23 || *minute > 59 || *second > 59) return bad;
  return time + std::chrono::hours(*hour) + std::chrono::minutes(*minute) +
         std::chrono::seconds(*second);
}

Status render_template_batch(std::string_view source, std::optional<std::chrono::local_seconds> now,
                             std::istream& input, std::ostream& output) {
  const std::optional<std::string> inner = template_of_config(source);
  const Result<jinja::ChatTemplate> chat_template =
      jinja::ChatTemplate::parse(inner ? *inner : source);
  if (!chat_template.ok()) return chat_template.error();
  jinja::RenderOptions options;
  options.now = now;
  for (std::string line; std::getline(input, line);) {
    if (line.empty()) continue;
    Result<std::string> rendered = render_line(*chat_template, line, options);
    json::Object answer;
    if (rendered.ok()) {
      answer["output"] = rendered.take();
    } else {
      answer["error"] = rendered.error().message;
    }
    output << json::serialize(json::Value(std::move(answer))) << '\n';
  }
  return ok_status();
}

}  // namespace llorch::tools
