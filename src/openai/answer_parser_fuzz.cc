// Any text as a model's answer, cut anywhere: no call is begun twice, arguments belong to the last
// one, and the pieces make no difference. The first bytes choose the settings and the cuts.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "openai/answer_parser.h"

namespace {

using namespace llorch;
using namespace llorch::openai;

struct Told {
  std::string content;
  std::string reasoning;
  std::string calls;
  bool operator==(const Told&) const = default;
};

void tell(Told& told, const AnswerParts& parts, std::size_t& num_calls) {
  for (const AnswerPart& part : parts) {
    CHECK(!part.text.empty() || part.kind == AnswerPart::Kind::CallBegin);
    if (part.kind == AnswerPart::Kind::Content) told.content += part.text;
    if (part.kind == AnswerPart::Kind::Reasoning) told.reasoning += part.text;
    if (part.kind == AnswerPart::Kind::CallBegin) {
      CHECK(part.call == num_calls);
      ++num_calls;
      told.calls += "\n" + part.text + "\n";
    }
    if (part.kind == AnswerPart::Kind::CallArguments) {
      CHECK(part.call + 1 == num_calls);
      told.calls += part.text;
    }
  }
}

Told parse(const ParserSettings& settings, std::string_view text, bool was_cut, std::size_t step) {
  AnswerParser parser(settings);
  Told told;
  std::size_t num_calls = 0;
  for (std::size_t at = 0; at < text.size(); at += step)
    tell(told, parser.add(text.substr(at, step)), num_calls);
  tell(told, parser.finish(was_cut), num_calls);
  CHECK(num_calls == parser.num_calls() && num_calls <= settings.max_calls);
  return told;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHeader = 3;
  if (size < kHeader || size > 16'384) return 0;
  ParserSettings settings;
  settings.dialect = static_cast<ToolDialect>(data[0] % 11);
  settings.thinking = static_cast<ThinkingStyle>(data[1] % 4);
  settings.begins_thinking = settings.thinking != ThinkingStyle::None && (data[1] & 4U) != 0;
  settings.max_calls = (data[1] & 8U) != 0 ? 1 : 128;
  if ((data[1] & 16U) == 0)
    settings.tools =
        std::make_shared<const ToolList>(ToolList{{"f", nullptr}, {"get_weather", {}}});
  if ((data[1] & 32U) != 0) settings.special_markers = {"[TOOL_CALLS]", "<|python_tag|>", "[ARGS]"};
  if ((data[1] & 64U) != 0 && settings.looks_for_calls())
    settings.opening = call_form(settings.dialect).opening;
  const bool was_cut = (data[1] & 128U) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + kHeader, size - kHeader);
  const Told whole = parse(settings, text, was_cut, text.size() + 1);
  CHECK(parse(settings, text, was_cut, 1) == whole);
  CHECK(parse(settings, text, was_cut, 1U + data[2] % 64U) == whole);
  if (settings.is_idle() && settings.special_markers.empty()) CHECK(whole.content == text);
  return 0;
}
