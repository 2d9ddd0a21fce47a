#include "template/chat_template.h"

#include <fmt/format.h>

#include <utility>

#include "template/evaluator.h"
#include "template/parser.h"
#include "template/run.h"

namespace llorch::jinja {

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  Result<std::shared_ptr<const Program>> program = parse_program(source);
  if (!program.ok()) return program.error();
  return ChatTemplate(program.take());
}

Result<MarkedText> ChatTemplate::render(const json::Value& context,
                                        const RenderOptions& options) const {
  if (!context.is_object()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("chat template context: expected an object, found {}",
                             json::kind_name(context))};
  }
  Run run(options);
  Evaluator evaluator(*program_, run, context.get_object());
  MarkedText text = evaluator.render();
  if (run.failed()) return run.error();
  return text;
}

}  // namespace llorch::jinja
