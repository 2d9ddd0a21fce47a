// JSON Schema → automaton, one rule for each subschema, from a list of those still to do: no
// recursion, so a schema's nesting and references cost no stack.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "grammar/builder.h"
#include "grammar/json_grammar.h"
#include "grammar/number_range.h"
#include "grammar/schema.h"

namespace llorch::grammar {

namespace {

class SchemaCompiler {
 public:
  SchemaCompiler(Builder& builder, const json::Value& document)
      : document_(document), builder_(builder) {}

  // The rule of the whole document.
  Result<RuleId> compile() {
    Result<RuleId> root = rule_for({&document_, "#"});
    if (!root.ok()) return root.error();
    while (!jobs_.empty() && !builder_.is_full()) {
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      if (Status done = compile_rule(job); !done.ok()) return done.error();
    }
    return root;
  }

 private:
  struct Job {
    SchemaAt schema;
    RuleId rule = 0;
  };

  // The rule of a subschema; its content follows when its turn comes.
  Result<RuleId> rule_for(SchemaAt at);
  Status compile_rule(const Job& job);
  Status compile_types(const Job& job, const json::Object& schema, NodeId end);
  Status compile_constants(const Job& job, const json::Object& schema, NodeId end);
  Status compile_alternatives(const Job& job, const json::Object& schema, NodeId end);
  Status compile_number(const Job& job, const json::Object& schema, bool is_integer, NodeId end);
  Status compile_string(const Job& job, const json::Object& schema, NodeId end);
  Status compile_array(const Job& job, const json::Object& schema, NodeId end);
  Status compile_object(const Job& job, const json::Object& schema, NodeId end);
  Result<std::vector<Builder::Property>> read_properties(const Job& job,
                                                         const json::Object& schema);
  Status add_required(const Job& job, const json::Object& schema,
                      std::vector<Builder::Property>& properties, std::optional<RuleId> others);
  // Of a keyword that is a schema or absent; nothing where it is false or absent.
  Result<std::optional<RuleId>> optional_rule(const Job& job, const json::Object& schema,
                                              std::string_view keyword);
  static Result<CountRange> read_counts(const Job& job, const json::Object& schema,
                                        std::string_view min_key, std::string_view max_key);
  Status check_oneof(const json::Array& branches, const std::string& pointer);

  const json::Value& document_;
  Builder& builder_;
  std::int64_t budget_ = kDisjointBudget;
  std::unordered_map<const json::Value*, RuleId> rules_;
  std::deque<Job> jobs_;
};

const json::Value* find(const json::Object& schema, std::string_view keyword) {
  return schema.if_contains(boost::json::string_view(keyword.data(), keyword.size()));
}

Result<RuleId> SchemaCompiler::rule_for(SchemaAt at) {
  // References lead straight to what they name, after their own keywords were looked at.
  for (std::size_t i = 0; is_reference(*at.value); ++i) {
    if (i == kMaxReferences) {
      return error_at(ErrorCode::InvalidArgument, at.pointer,
                      fmt::format("the schema refers to itself with nothing in between, or through "
                                  "more than {} references",
                                  kMaxReferences));
    }
    Status keywords = check_keywords(at.value->get_object(), at.pointer);
    if (!keywords.ok()) return keywords.error();
    Result<SchemaAt> target = follow_reference(document_, at);
    if (!target.ok()) return target.error();
    at = target.take();
  }
  if (const auto found = rules_.find(at.value); found != rules_.end()) return found->second;
  if (rules_.size() >= kMaxSchemas) {
    return Error{ErrorCode::TooLarge,
                 fmt::format("the schema has more than {} subschemas", kMaxSchemas)};
  }
  const RuleId rule = builder_.add_rule(at.pointer);
  rules_[at.value] = rule;
  jobs_.push_back({std::move(at), rule});
  return rule;
}

Status SchemaCompiler::compile_rule(const Job& job) {
  const NodeId end = builder_.add_node(job.rule);
  builder_.set_final(end);
  const json::Value& value = *job.schema.value;
  if (value.is_bool()) {  // false: the rule stays without a way to its end
    if (value.get_bool()) {
      builder_.add_call(builder_.start(job.rule), builder_.any_value_rule(), end);
    }
    return ok_status();
  }
  const json::Object* schema = value.if_object();
  if (schema == nullptr) {
    return error_at(ErrorCode::InvalidArgument, job.schema.pointer,
                    fmt::format("expected a schema (an object, true or false), found {}",
                                json::kind_name(value)));
  }
  if (Status keywords = check_keywords(*schema, job.schema.pointer); !keywords.ok()) {
    return keywords;
  }
  if (schema->contains("enum") || schema->contains("const")) {
    return compile_constants(job, *schema, end);
  }
  if (schema->contains("anyOf") || schema->contains("oneOf") || schema->contains("allOf")) {
    return compile_alternatives(job, *schema, end);
  }
  return compile_types(job, *schema, end);
}

Status SchemaCompiler::compile_constants(const Job& job, const json::Object& schema, NodeId end) {
  const Result<TypeSet> types = types_of(schema, job.schema.pointer);
  if (!types.ok()) return types.error();
  const bool has_type = schema.contains("type");
  std::vector<std::string> texts;
  const auto add = [&](const json::Value& value) {
    if (!has_type || (type_of(value) & types.value()) != 0) texts.push_back(json_literal(value));
  };
  if (const json::Value* constant = schema.if_contains("const")) {
    add(*constant);
  } else {
    const std::string pointer = child_pointer(job.schema.pointer, "enum");
    const json::Value& list = schema.at("enum");
    if (!list.is_array() || list.get_array().empty()) {
      return error_at(ErrorCode::InvalidArgument, pointer, "expected a list of at least one value");
    }
    if (list.get_array().size() > kMaxEnumValues) {
      return error_at(ErrorCode::TooLarge, pointer,
                      fmt::format("{} values; at most {} can be enforced", list.get_array().size(),
                                  kMaxEnumValues));
    }
    for (const json::Value& value : list.get_array()) add(value);
  }
  if (texts.empty()) {
    return error_at(ErrorCode::InvalidArgument, child_pointer(job.schema.pointer, "type"),
                    "no value of \"enum\" or \"const\" has this type");
  }
  builder_.add_literals(builder_.start(job.rule), std::move(texts), end);
  return ok_status();
}

Status SchemaCompiler::compile_alternatives(const Job& job, const json::Object& schema,
                                            NodeId end) {
  const std::string_view keyword = schema.contains("anyOf")   ? "anyOf"
                                   : schema.contains("oneOf") ? "oneOf"
                                                              : "allOf";
  const std::string pointer = child_pointer(job.schema.pointer, keyword);
  const json::Value& list = *find(schema, keyword);
  if (!list.is_array() || list.get_array().empty()) {
    return error_at(ErrorCode::InvalidArgument, pointer, "expected a list of at least one schema");
  }
  const json::Array& branches = list.get_array();
  if (branches.size() > kMaxAlternatives) {
    return error_at(ErrorCode::TooLarge, pointer,
                    fmt::format("{} alternatives; at most {} can be followed at once",
                                branches.size(), kMaxAlternatives));
  }
  if (keyword == "allOf" && branches.size() > 1) {
    return error_at(ErrorCode::Unsupported, pointer,
                    "only one schema can be enforced; merge them into one");
  }
  if (keyword == "oneOf") {
    if (Status checked = check_oneof(branches, pointer); !checked.ok()) return checked;
  }
  for (std::size_t i = 0; i < branches.size(); ++i) {
    const Result<RuleId> branch = rule_for({&branches[i], child_pointer(pointer, i)});
    if (!branch.ok()) return branch.error();
    builder_.add_call(builder_.start(job.rule), branch.value(), end);
  }
  return ok_status();
}

// "Exactly one" is "at least one" where no two can hold together.
Status SchemaCompiler::check_oneof(const json::Array& branches, const std::string& pointer) {
  for (std::size_t i = 0; i < branches.size(); ++i) {
    for (std::size_t j = i + 1; j < branches.size(); ++j) {
      if (are_disjoint(document_, branches[i], branches[j], budget_)) continue;
      return error_at(ErrorCode::Unsupported, pointer,
                      fmt::format("schemas {} and {} may both match, and \"exactly one\" cannot be "
                                  "enforced; use \"anyOf\", or give both a required property with "
                                  "different constants",
                                  i, j));
    }
  }
  return ok_status();
}

Status SchemaCompiler::compile_types(const Job& job, const json::Object& schema, NodeId end) {
  const Result<TypeSet> result = types_of(schema, job.schema.pointer);
  if (!result.ok()) return result.error();
  const TypeSet types = result.value();
  const NodeId from = builder_.start(job.rule);
  std::vector<std::string> literals;
  if ((types & kNull) != 0) literals.emplace_back("null");
  if ((types & kBoolean) != 0) literals.insert(literals.end(), {"true", "false"});
  builder_.add_literals(from, std::move(literals), end);
  if ((types & kInteger) != 0) {
    const bool is_integer = (types & kFraction) == 0;
    Status done = compile_number(job, schema, is_integer, end);
    if (!done.ok()) return done;
  }
  if ((types & kString) != 0) {
    if (Status done = compile_string(job, schema, end); !done.ok()) return done;
  }
  if ((types & kArray) != 0) {
    if (Status done = compile_array(job, schema, end); !done.ok()) return done;
  }
  if ((types & kObject) != 0) {
    if (Status done = compile_object(job, schema, end); !done.ok()) return done;
  }
  return ok_status();
}

Status SchemaCompiler::compile_string(const Job& job, const json::Object& schema, NodeId end) {
  const Result<CountRange> length = read_counts(job, schema, "minLength", "maxLength");
  if (!length.ok()) return length.error();
  const NodeId from = builder_.start(job.rule);
  const json::Value* pattern = find(schema, "pattern");
  if (pattern == nullptr) {
    builder_.add_call(from, builder_.string_rule(length.value()), end);
    return ok_status();
  }
  const std::string pointer = child_pointer(job.schema.pointer, "pattern");
  if (!pattern->is_string())
    return error_at(ErrorCode::InvalidArgument, pointer, "expected a regular expression");
  const Result<RuleId> rule =
      builder_.pattern_rule(json::view(pattern->get_string()), length.value());
  if (!rule.ok()) {
    return error_at(rule.error().code, pointer, "the regular expression: " + rule.error().message);
  }
  builder_.add_call(from, *rule, end);
  return ok_status();
}

Status SchemaCompiler::compile_number(const Job& job, const json::Object& schema, bool is_integer,
                                      NodeId end) {
  NumberRange range = {.is_integer = is_integer};
  const auto read = [&](std::string_view keyword, bool is_low, bool is_open) -> Status {
    const json::Value* value = find(schema, keyword);
    if (value == nullptr) return ok_status();
    if (!value->is_number()) {
      return error_at(ErrorCode::InvalidArgument, child_pointer(job.schema.pointer, keyword),
                      fmt::format("expected a number, found {}", json::kind_name(*value)));
    }
    const NumberBound bound = {to_decimal(*value), is_open};
    std::optional<NumberBound>& known = is_low ? range.low : range.high;
    const int order = known ? compare(bound.value, known->value) * (is_low ? 1 : -1) : 1;
    if (order > 0 || (order == 0 && is_open)) known = bound;  // the narrower of two
    return ok_status();
  };
  for (const bool is_low : {true, false}) {
    Status closed = read(is_low ? "minimum" : "maximum", is_low, false);
    if (!closed.ok()) return closed;
    Status open = read(is_low ? "exclusiveMinimum" : "exclusiveMaximum", is_low, true);
    if (!open.ok()) return open;
  }
  const NodeId from = builder_.start(job.rule);
  if (range.low || range.high) {
    add_number_range(builder_, job.rule, from, end, std::move(range));
  } else {
    builder_.add_call(from, is_integer ? builder_.integer_rule() : builder_.number_rule(), end);
  }
  return ok_status();
}

Result<CountRange> SchemaCompiler::read_counts(const Job& job, const json::Object& schema,
                                               std::string_view min_key, std::string_view max_key) {
  CountRange range;
  for (const auto& [keyword, target] :
       {std::pair{min_key, &range.min}, std::pair{max_key, &range.max}}) {
    const json::Value* value = find(schema, keyword);
    if (value == nullptr) continue;
    const std::string pointer = child_pointer(job.schema.pointer, keyword);
    const bool is_integral = value->is_number() && type_of(*value) == kInteger;
    const double count = is_integral ? value->to_number<double>() : -1;
    if (!is_integral || count < 0) {
      return error_at(ErrorCode::InvalidArgument, pointer, "expected a whole number from 0 on");
    }
    if (count > static_cast<double>(kMaxCount)) {
      return error_at(ErrorCode::TooLarge, pointer, fmt::format("at most {}", kMaxCount));
    }
    *target = static_cast<std::uint32_t>(count);
  }
  if (range.min > range.max) {
    return error_at(ErrorCode::InvalidArgument, child_pointer(job.schema.pointer, min_key),
                    fmt::format("{} is more than {} {}", range.min, max_key, range.max));
  }
  return range;
}

Result<std::optional<RuleId>> SchemaCompiler::optional_rule(const Job& job,
                                                            const json::Object& schema,
                                                            std::string_view keyword) {
  const json::Value* value = find(schema, keyword);
  if (value == nullptr || (value->is_bool() && !value->get_bool())) return std::optional<RuleId>();
  const Result<RuleId> rule = rule_for({value, child_pointer(job.schema.pointer, keyword)});
  if (!rule.ok()) return rule.error();
  return std::optional<RuleId>(rule.value());
}

Status SchemaCompiler::compile_array(const Job& job, const json::Object& schema, NodeId end) {
  const Result<CountRange> count = read_counts(job, schema, "minItems", "maxItems");
  if (!count.ok()) return count.error();
  std::vector<RuleId> prefix;
  if (const json::Value* list = find(schema, "prefixItems")) {
    const std::string pointer = child_pointer(job.schema.pointer, "prefixItems");
    if (!list->is_array()) {
      return error_at(ErrorCode::InvalidArgument, pointer, "expected a list of schemas");
    }
    for (std::size_t i = 0; i < list->get_array().size(); ++i) {
      const Result<RuleId> rule = rule_for({&list->get_array()[i], child_pointer(pointer, i)});
      if (!rule.ok()) return rule.error();
      prefix.push_back(rule.value());
    }
  }
  if (const json::Value* items = find(schema, "items"); items && items->is_array()) {
    return error_at(ErrorCode::Unsupported, child_pointer(job.schema.pointer, "items"),
                    "a list of schemas is the old form; use \"prefixItems\"");
  }
  Result<std::optional<RuleId>> rest = optional_rule(job, schema, "items");
  if (!rest.ok()) return rest.error();
  // Nothing said about items: any. After prefixItems only as many as minItems asks for.
  const bool is_open = prefix.empty() || count->min > prefix.size();
  if (!schema.contains("items") && is_open) rest = std::optional(builder_.any_value_rule());
  builder_.add_array(builder_.start(job.rule), prefix, rest.value(), count.value(), end);
  return ok_status();
}

Result<std::vector<Builder::Property>> SchemaCompiler::read_properties(const Job& job,
                                                                       const json::Object& schema) {
  std::vector<Builder::Property> properties;
  const json::Value* members = find(schema, "properties");
  if (members == nullptr) return properties;
  const std::string pointer = child_pointer(job.schema.pointer, "properties");
  if (!members->is_object()) {
    return error_at(ErrorCode::InvalidArgument, pointer,
                    fmt::format("expected an object, found {}", json::kind_name(*members)));
  }
  for (const auto& member : members->get_object()) {
    const std::string_view name = json::view(member.key());
    const std::string at = child_pointer(pointer, name);
    if (name.size() > kMaxNameBytes) {
      return error_at(ErrorCode::TooLarge, at,
                      fmt::format("a name of {} bytes; at most {}", name.size(), kMaxNameBytes));
    }
    const Result<RuleId> rule = rule_for({&member.value(), at});
    if (!rule.ok()) return rule.error();
    properties.push_back({.name = std::string(name), .value = rule.value()});
  }
  return properties;
}

Status SchemaCompiler::add_required(const Job& job, const json::Object& schema,
                                    std::vector<Builder::Property>& properties,
                                    std::optional<RuleId> others) {
  const json::Value* list = find(schema, "required");
  if (list == nullptr) return ok_status();
  const std::string pointer = child_pointer(job.schema.pointer, "required");
  if (!list->is_array()) {
    return error_at(ErrorCode::InvalidArgument, pointer, "expected a list of names");
  }
  std::unordered_map<std::string, std::size_t> by_name;
  for (std::size_t i = 0; i < properties.size(); ++i) by_name[properties[i].name] = i;
  for (const json::Value& one : list->get_array()) {
    if (!one.is_string() || one.get_string().size() > kMaxNameBytes) {
      return error_at(ErrorCode::InvalidArgument, pointer,
                      fmt::format("expected names of at most {} bytes", kMaxNameBytes));
    }
    const std::string name(json::view(one.get_string()));
    if (const auto found = by_name.find(name); found != by_name.end()) {
      properties[found->second].is_required = true;
      continue;
    }
    if (!others) {
      return error_at(ErrorCode::InvalidArgument, pointer,
                      fmt::format("{} is required and not allowed: it is not in \"properties\"",
                                  base::quoted(name)));
    }
    by_name[name] = properties.size();
    properties.push_back({.name = name, .value = *others, .is_required = true});
  }
  return ok_status();
}

Status SchemaCompiler::compile_object(const Job& job, const json::Object& schema, NodeId end) {
  Result<std::vector<Builder::Property>> properties = read_properties(job, schema);
  if (!properties.ok()) return properties.error();
  Result<std::optional<RuleId>> others = optional_rule(job, schema, "additionalProperties");
  if (!others.ok()) return others.error();
  // Nothing said about others: they may be anything, and are only written where required or where
  // no property is named.
  const bool is_silent = !schema.contains("additionalProperties");
  if (is_silent) others = std::optional(builder_.any_value_rule());
  if (Status done = add_required(job, schema, properties.value(), others.value()); !done.ok()) {
    return done;
  }
  std::size_t run = 0;
  for (const Builder::Property& property : properties.value()) {
    run = property.is_required ? 0 : run + 1;
    if (run > kMaxAlternatives) {
      return error_at(ErrorCode::TooLarge, child_pointer(job.schema.pointer, "properties"),
                      fmt::format("more than {} optional properties in a row; make some required",
                                  kMaxAlternatives));
    }
  }
  if (is_silent && !properties->empty()) others = std::optional<RuleId>();
  builder_.add_object(builder_.start(job.rule), properties.value(), others.value(), end);
  return ok_status();
}

}  // namespace

Result<RuleId> compile_schema(Builder& builder, const json::Value& schema) {
  return SchemaCompiler(builder, schema).compile();
}

}  // namespace llorch::grammar
