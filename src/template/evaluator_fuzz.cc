// Any template over a fixed conversation: text within the limits or an error that says something.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "template/chat_template.h"

namespace {

constexpr std::string_view kContext = R"({
  "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Grüße <b>", "n": 1},
               {"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": {"x": [1, 2.5]}}]}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
  "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>",
  "i": 7, "f": 2.5, "s": "Hello, World", "l": [3, 1, 2], "d": {"b": 1, "a": [true, null]}})";

// The marks are in order and apart, and what the conversation alone has is never marked.
void check_marks(const llorch::jinja::MarkedText& rendered, std::string_view source) {
  const bool is_plain =
      std::all_of(source.begin(), source.end(), [](char c) { return c >= 0 && c != '\\'; });
  std::size_t last = 0;
  for (const llorch::base::TextSpan& span : rendered.own) {
    CHECK(span.begin < span.end && span.end <= rendered.text.size());
    CHECK(last == 0 || span.begin > last);
    last = span.end;
    const std::string_view own =
        std::string_view(rendered.text).substr(span.begin, span.end - span.begin);
    CHECK(!is_plain || own.find("ü") == std::string_view::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace llorch;
  static const json::Value context = json::parse(kContext).take();
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const Result<jinja::ChatTemplate> parsed = jinja::ChatTemplate::parse(source);
  if (!parsed.ok()) return 0;
  jinja::RenderOptions options;
  options.now = std::chrono::local_seconds{};
  options.limits.max_steps = 100'000;
  options.limits.max_work_bytes = 4U << 20;
  options.limits.max_output_bytes = 1U << 20;
  options.special_tokens = {{"bos_token", "<s>"}};
  const Result<jinja::MarkedText> rendered = parsed->render(context, options);
  if (rendered.ok()) {
    CHECK(rendered->text.size() <= options.limits.max_output_bytes);
    check_marks(*rendered, source);
  } else {
    CHECK(rendered.error().code != ErrorCode::Internal);
  }
  return 0;
}
