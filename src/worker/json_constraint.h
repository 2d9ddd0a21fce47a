// Output that must be JSON: the grammar as the engine's constraint.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/request.h"
#include "grammar/json_grammar.h"
#include "worker/serving_model.h"
#include "worker_http/backend.h"

namespace llorch::worker {

using GrammarPtr = std::shared_ptr<const grammar::JsonGrammar>;

// The grammar of a format, which all generations of a request share; null for plain text.
// InvalidArgument for a schema that the output cannot be held to, naming the keyword and its place,
// and for a vocabulary that cannot write JSON.
Result<GrammarPtr> compile_format(const worker_http::OutputFormat& format,
                                  const ServingModel& model);

// For one generation; null without a grammar.
std::unique_ptr<engine::TokenConstraint> make_constraint(const GrammarPtr& grammar,
                                                         const ServingModel& model);

}  // namespace llorch::worker
