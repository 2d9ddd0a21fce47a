#include "worker/json_constraint.h"

#include <utility>

#include "base/check.h"
#include "grammar/json_grammar.h"

namespace llorch::worker {
namespace {

class JsonConstraint final : public engine::TokenConstraint {
 public:
  explicit JsonConstraint(grammar::TokenMasker masker) : masker_(std::move(masker)) {}

  void mask(std::span<float> logits) override { masker_.mask(logits); }
  void allow(std::span<std::uint32_t> ids) override { masker_.allow(ids); }
  void accept(engine::TokenId id) override {
    const bool accepted = masker_.accept(id);
    DCHECK(accepted, "an id that was masked");
  }

 private:
  grammar::TokenMasker masker_;
};

// Arguments follow their schema; where that cannot be enforced and need not be, any object.
Result<GrammarPtr> compile_calls(const worker_http::OutputFormat& format) {
  grammar::FramedGrammar frame;
  frame.between = format.between;
  frame.closing = format.closing;
  frame.max_values = format.max_calls;
  for (const worker_http::OutputFormat::Call& call : format.calls) {
    const bool holds = call.strict || grammar::compile_json_schema(call.schema).ok();
    frame.values.push_back({call.before,
                            holds ? call.schema : json::Value(json::Object{{"type", "object"}}),
                            call.after});
  }
  return grammar::compile_framed(frame);
}

}  // namespace

Result<GrammarPtr> compile_format(const worker_http::OutputFormat& format,
                                  const ServingModel& model) {
  using Kind = worker_http::OutputFormat::Kind;
  if (format.kind == Kind::Text) return GrammarPtr();
  if (!model.mask_table.ok()) {
    return Error{ErrorCode::InvalidArgument,
                 "this model cannot be held to JSON: " + model.mask_table.error().message};
  }
  Result<GrammarPtr> grammar = format.kind == Kind::JsonObject ? grammar::compile_json_object()
                               : format.kind == Kind::ToolCalls
                                   ? compile_calls(format)
                                   : grammar::compile_json_schema(format.schema);
  // Malformed, too large or beyond what can be enforced: in each case the schema's fault.
  if (!grammar.ok()) return Error{ErrorCode::InvalidArgument, grammar.error().message};
  return grammar;
}

std::unique_ptr<engine::TokenConstraint> make_constraint(const GrammarPtr& grammar,
                                                         const ServingModel& model) {
  if (grammar == nullptr) return nullptr;
  return std::make_unique<JsonConstraint>(grammar::TokenMasker(grammar, *model.mask_table));
}

}  // namespace llorch::worker
