// Typed key/value facts of a model file: GGUF keys, or config.json flattened to dotted keys
// ("config.rope_scaling.type"). Array contents stay where they are (mapped memory) until asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace llorch::formats {

enum class ElementType : std::uint8_t {
  U8,
  I8,
  U16,
  I16,
  U32,
  I32,
  F32,
  Bool,
  String,
  Array,
  U64,
  I64,
  F64,
};
std::string_view name(ElementType type);
// Bytes of one element; 0 for String and Array, whose elements differ in size.
std::size_t element_bytes(ElementType type);

// `count` elements packed little-endian; strings as (u64 length, bytes) each, as GGUF stores them.
// The reader that made it has walked it: lengths are within `bytes`.
struct ArrayView {
  ElementType type = ElementType::U8;
  std::uint64_t count = 0;
  std::span<const std::byte> bytes;
};

// Texts as such an array keeps them.
std::vector<std::byte> pack_texts(std::span<const std::string> texts);

using Value = std::variant<bool, std::int64_t, std::uint64_t, double, std::string, ArrayView>;

class Metadata {
 public:
  // Refuses a key that is already there. `stored` is the exact type that a GGUF file has or shall
  // have for it: the value itself only knows how numbers are held here.
  Status add(std::string key, Value value, std::optional<ElementType> stored = std::nullopt);
  // A key that is there without a value: JSON's null. contains() and find() treat it as absent;
  // whoever must tell the two apart asks is_null().
  void add_null(std::string key) { nulls_.insert(std::move(key)); }
  bool is_null(std::string_view key) const { return nulls_.contains(key); }
  const std::set<std::string, std::less<>>& nulls() const { return nulls_; }
  // Keeps array bytes that live in no mapped file; the returned span is valid as long as this
  // object (moving it included).
  std::span<const std::byte> adopt(std::vector<std::byte> bytes);

  const Value* find(std::string_view key) const;  // null when absent
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  std::optional<ElementType> stored_type(
      std::string_view key) const;  // nothing where add() was not told
  std::size_t size() const { return entries_.size(); }
  const std::map<std::string, Value, std::less<>>& entries() const { return entries_; }

  // Typed access. Absent or of another type: an error that names the key, the expected and the
  // found. Integers may be stored signed or unsigned; numbers may be stored as integers.
  Result<std::int64_t> integer(std::string_view key) const;
  Result<double> number(std::string_view key) const;
  Result<bool> flag(std::string_view key) const;
  Result<std::string_view> text(std::string_view key) const;
  Result<std::vector<std::int64_t>> integers(std::string_view key) const;
  Result<std::vector<double>> numbers(std::string_view key) const;
  Result<std::vector<std::string_view>> texts(std::string_view key) const;

  // The same with a default for an absent key; a value of another type is still an error.
  Result<std::int64_t> integer_or(std::string_view key, std::int64_t fallback) const;
  Result<double> number_or(std::string_view key, double fallback) const;
  Result<bool> flag_or(std::string_view key, bool fallback) const;

 private:
  std::map<std::string, Value, std::less<>> entries_;
  std::map<std::string, ElementType, std::less<>> stored_types_;
  std::set<std::string, std::less<>> nulls_;
  std::deque<std::vector<std::byte>> adopted_;
};

}  // namespace llorch::formats
