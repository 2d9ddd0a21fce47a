// Chat templates: conversations to prompts, by the Jinja templates that models are shipped with.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_limit.h"
#include "template/marked_text.h"

namespace llorch::jinja {

struct Program;

// What one rendering may use before it is an error. The defaults are far beyond any real template
// and stop a hostile one within about a second.
struct RenderLimits {
  // Expressions, statements, loop rounds, elements, and each 64 bytes of a string that is read.
  std::int64_t max_steps = 20'000'000;
  std::size_t max_output_bytes = 64U << 20;  // of the prompt
  std::size_t max_work_bytes = 512U << 20;   // of all strings and lists made on the way, in total
  int max_depth = 600;                       // statements and expressions within one another
};

struct RenderOptions {
  // What strftime_now() tells; without it, a template that asks for the date is an error.
  std::optional<std::chrono::local_seconds> now;
  RenderLimits limits;
  // bos_token and its kind: variables whose text is as good as the template's own.
  std::map<std::string, std::string, std::less<>> special_tokens;
  // Past its deadline the rendering is TooLarge; once its stop is requested it is Cancelled.
  base::WorkLimit limit;
};

// A parsed template. Immutable: any number of threads may render at once. Copies are cheap.
//
// The meaning is that of Python's Jinja as Hugging Face's transformers sets it up: sandboxed and
// immutable data, trim_blocks and lstrip_blocks, loop controls, generation blocks, a tojson that
// does not escape HTML, raise_exception() and strftime_now().
class ChatTemplate {
 public:
  // Corrupt: a syntax error. Unsupported: a tag that we do not do (include, import, …). TooLarge:
  // source or nesting beyond the bounds. All name the line.
  static Result<ChatTemplate> parse(std::string_view source);

  // `context` is an object whose members are the template's variables: messages, tools, documents,
  // add_generation_prompt and whatever else the caller passes on. All strings in it are text of
  // users, but for the role of a message where it is a known one. The result tells what the
  // template wrote itself: only there does a special token mean anything.
  // InvalidArgument: the template itself refused with raise_exception(), whose message is passed on
  // unchanged. TooLarge: a limit was reached. Corrupt: anything else that went wrong in the
  // template, with the line.
  Result<MarkedText> render(const json::Value& context, const RenderOptions& options) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  std::shared_ptr<const Program> program_;
};

// The source of a template that comes with us ("chatml", "llama3", …); nothing for another name.
std::optional<std::string_view> find_builtin_template(std::string_view name);
std::vector<std::string_view> builtin_template_names();

}  // namespace llorch::jinja
