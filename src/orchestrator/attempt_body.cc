#include "orchestrator/attempt_body.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/enum_names.h"
#include "base/json.h"

namespace llorch::orchestrator {
namespace {

void append_ids(const std::vector<std::int32_t>& ids, std::string& text) {
  text += '[';
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) text += ',';
    text += fmt::format_int(ids[i]).str();
  }
  text += ']';
}

// Puts members, each with its comma in front, before the last brace.
std::string with_members(std::string_view object, std::string_view members) {
  while (!object.empty() && object.back() != '}') object.remove_suffix(1);
  object.remove_suffix(1);
  const std::size_t last = object.find_last_not_of(" \t\r\n");
  const bool is_empty = last == std::string_view::npos || object[last] == '{';
  std::string text(object);
  text += is_empty ? members.substr(1) : members;
  text += '}';
  return text;
}

bool has_ids(const ToldIds& told) {
  return std::any_of(told.begin(), told.end(), [](const auto& ids) { return !ids.empty(); });
}

// One list for a single choice, a list of lists for several.
std::string resume_ids(const ToldIds& told) {
  std::string text;
  if (told.size() == 1) {
    append_ids(told[0], text);
    return text;
  }
  for (const std::vector<std::int32_t>& ids : told) {
    text += text.empty() ? '[' : ',';
    append_ids(ids, text);
  }
  return text + "]";
}

}  // namespace

Result<std::string> attempt_body(std::string_view body, fleet::JobKind kind, std::uint64_t seed,
                                 const fleet::AttemptId& attempt, const ToldIds& told) {
  if (kind == fleet::JobKind::Execute) {
    if (body.find('}') == std::string_view::npos)
      return Error{ErrorCode::InvalidArgument, "the request's body is no object"};
    std::string members = fmt::format(R"(,"job_id":"{}","seed":{})", fleet::text(attempt), seed);
    if (has_ids(told)) {
      members += R"(,"resume":{"ids":)";
      append_ids(told[0], members);
      members += '}';
    }
    return with_members(body, members);
  }
  Result<json::Value> parsed = json::parse(body);
  if (!parsed.ok()) return parsed.error();
  json::Object* object = parsed->if_object();
  if (object == nullptr)
    return Error{ErrorCode::InvalidArgument, "the request's body is no object"};
  for (const std::string_view name : {"model", "stream", "stream_options", "seed", "llorch"})
    object->erase(name);
  if (kind == fleet::JobKind::Embedding) return json::serialize(*parsed);
  // Signed on these endpoints.
  std::string members =
      fmt::format(R"(,"stream":true,"stream_options":{{"include_usage":true}},"seed":{})",
                  static_cast<std::int64_t>(seed));
  if (has_ids(told)) members += R"(,"llorch":{"resume_ids":)" + resume_ids(told) + "}";
  return with_members(json::serialize(*parsed), members);
}

std::string_view endpoint_of(fleet::JobKind kind) {
  static constexpr base::EnumNames<fleet::JobKind::Embedding> kNames(
      "execute", "v1/completions", "v1/chat/completions", "v1/embeddings");
  return kNames[kind];
}

}  // namespace llorch::orchestrator
