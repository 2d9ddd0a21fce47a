#include "audit/audit_chain.h"

#include <fmt/format.h>

#include <limits>

#include "base/digest.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "base/timestamp.h"
#include "base/utf8.h"

namespace llorch::audit {
namespace {

constexpr std::size_t kFieldBytesMax = 256;
constexpr std::string_view kHashField = ",\"hash\":\"";
constexpr std::string_view kEnd = "\"}";
constexpr std::size_t kHashDigits = 64;
constexpr std::size_t kTailBytes = kHashField.size() + kHashDigits + kEnd.size();

std::string hash_of(std::string_view previous, std::string_view text) {
  base::Digest digest;
  digest.add(previous);
  digest.add(text);
  return digest.finish_hex();
}

std::string bounded(std::string_view text) {
  return base::to_valid_utf8(text.substr(0, kFieldBytesMax));
}

Error corrupt(std::string_view what) {
  return {ErrorCode::Corrupt, std::string(what)};
}

}  // namespace

std::string write_line(const Act& act, std::chrono::system_clock::time_point now, Head& head) {
  json::Object object{{"seq", head.seq + 1},           {"ts", base::to_rfc3339(now)},
                      {"actor", bounded(act.actor)},   {"action", bounded(act.action)},
                      {"object", bounded(act.object)}, {"result", bounded(act.result)}};
  if (!act.detail.empty()) object["detail"] = bounded(act.detail);
  object["prev"] = head.hash;
  std::string text = json::serialize(object);
  head = {head.seq + 1, hash_of(head.hash, text)};
  text.pop_back();  // the brace
  return text + fmt::format("{}{}{}\n", kHashField, head.hash, kEnd);
}

Result<Line> read_line(std::string_view text) {
  if (text.size() <= kTailBytes || !text.ends_with(kEnd))
    return corrupt("it is no line of an audit log");
  const std::string_view tail = text.substr(text.size() - kTailBytes);
  if (!tail.starts_with(kHashField)) return corrupt("it has no hash");
  const std::string body = std::string(text.substr(0, text.size() - kTailBytes)) + "}";
  const Result<json::Value> value = json::parse(body);
  if (!value.ok() || !value->is_object()) return corrupt("it is not JSON");
  json::FieldReader reader(value->get_object());
  Line line;
  line.seq = static_cast<std::uint64_t>(
      reader.required_integer("seq", 1, std::numeric_limits<std::int64_t>::max()));
  line.time = reader.required_string("ts");
  line.act.actor = reader.required_string("actor");
  line.act.action = reader.required_string("action");
  line.act.object = reader.required_string("object");
  line.act.result = reader.required_string("result");
  line.act.detail = reader.optional_string("detail").value_or("");
  line.previous = reader.required_string("prev");
  line.hash = tail.substr(kHashField.size(), kHashDigits);
  if (!reader.finish().empty()) return corrupt("it is no line of an audit log");
  if (hash_of(line.previous, body) != line.hash)
    return corrupt("its text was changed: the hash is another one");
  return line;
}

}  // namespace llorch::audit
