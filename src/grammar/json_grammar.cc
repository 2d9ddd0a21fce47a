#include "grammar/json_grammar.h"

#include <fmt/format.h>

#include "grammar/builder.h"
#include "grammar/schema.h"

namespace llorch::grammar {

Result<std::shared_ptr<const JsonGrammar>> compile_json_object() {
  Builder builder;
  const RuleId object = builder.any_object_rule();
  return builder.finish(object);
}

Result<std::shared_ptr<const JsonGrammar>> compile_json_schema(const json::Value& schema) {
  Builder builder;
  const Result<RuleId> rule = compile_schema(builder, schema);
  if (!rule.ok()) return rule.error();
  return builder.finish(*rule);
}

Result<std::shared_ptr<const JsonGrammar>> compile_framed(const FramedGrammar& frame) {
  if (frame.values.empty()) return Error{ErrorCode::InvalidArgument, "no value to choose from"};
  Builder builder;
  const RuleId root = builder.add_rule("#");
  const NodeId done = builder.add_node(root);  // a value is written
  const NodeId end = builder.add_node(root);
  const bool is_list = !frame.between.empty() && frame.max_values > 1;
  const NodeId next = is_list ? builder.add_node(root) : done;
  builder.set_final(end);
  const auto is_long = [](const std::string& text) { return text.size() > kMaxFrameBytes; };
  bool too_long = is_long(frame.between) || is_long(frame.closing);
  for (std::size_t i = 0; i < frame.values.size(); ++i) {
    const FramedSchema& value = frame.values[i];
    too_long = too_long || is_long(value.before) || is_long(value.after);
    if (too_long) break;
    const Result<RuleId> rule = compile_schema(builder, value.schema);
    if (!rule.ok()) {
      return Error{rule.error().code, fmt::format("schema {}: {}", i, rule.error().message)};
    }
    const NodeId before = builder.add_node(root);
    const NodeId after = builder.add_node(root);
    builder.add_literal(builder.start(root), value.before, before);
    if (is_list) builder.add_literal(next, value.before, before);
    builder.add_call(before, *rule, after);
    builder.add_literal(after, value.after, done);
  }
  if (too_long) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a text around a schema has more than {} bytes", kMaxFrameBytes)};
  }
  if (is_list) {
    builder.set_counts(root, {.max = frame.max_values - 1});  // of the texts in between
    const NodeId begun = builder.add_node(root);
    builder.add_byte(done, frame.between.front(), begun, {.counts = true});
    builder.add_literal(begun, std::string_view(frame.between).substr(1), next);
  }
  builder.add_literal(done, frame.closing, end);
  return builder.finish_exact(root);
}

}  // namespace llorch::grammar
