// How the store knows which hosts came by themselves, and with which key. Private to orchestrator/.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "fleet/ids.h"

namespace llorch::orchestrator {

inline std::string joined_entry(fleet::KeyId key) {
  return json::serialize(
      json::Object{{"wish", "up"}, {"kind", "joined"}, {"key", fleet::text(key)}});
}

// The key that it joined with; nothing: it is reached with ssh.
inline std::optional<fleet::KeyId> joined_by(std::string_view entry) {
  const Result<json::Value> value = json::parse(entry);
  if (!value.ok() || !value->is_object()) return std::nullopt;
  const json::Value* kind = value->get_object().if_contains("kind");
  const json::Value* key = value->get_object().if_contains("key");
  if (kind == nullptr || *kind != "joined" || key == nullptr || !key->is_string())
    return std::nullopt;
  return fleet::key_id_from_text(json::view(key->get_string()));
}

}  // namespace llorch::orchestrator
