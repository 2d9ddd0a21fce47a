// Reading what another program of ours sent. Private to contract/. Unlike a request, such a message
// may carry fields we do not know (a newer peer); one that lacks what the contract promises is the
// peer's fault: Internal.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"
#include "contract/fields.h"

namespace llorch::contract {

// `what` names the message in errors: "end event".
Result<json::Object> parse_peer_object(std::string_view what, std::string_view text);

Error not_an_object(std::string_view what, const json::Value& value);

// What the reader failed on, unknown fields aside, as one error.
Status check_peer_object(std::string_view what, json::FieldReader& reader);

// A described struct (fields.h) of a message.
template <class T>
Result<T> read_peer(std::string_view what, const json::Object& object) {
  json::FieldReader reader(object);
  FieldTaker taker(reader);
  T value;
  describe(taker, value);
  if (Status sound = check_peer_object(what, reader); !sound.ok()) return sound.error();
  return value;
}
template <class T>
Result<T> parse_peer(std::string_view what, std::string_view text) {
  const Result<json::Object> object = parse_peer_object(what, text);
  if (!object.ok()) return object.error();
  return read_peer<T>(what, *object);
}
// The same of a part of a message that was parsed already.
template <class T>
Result<T> read_peer(std::string_view what, const json::Value& value) {
  if (const json::Object* object = value.if_object()) return read_peer<T>(what, *object);
  return not_an_object(what, value);
}

}  // namespace llorch::contract
