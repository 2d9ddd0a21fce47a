#include "fleet/record_codec.h"

#include <cstddef>
#include <type_traits>

namespace llorch::fleet {
namespace {

constexpr std::size_t kTextsMax = 64;
constexpr std::size_t kIdsMax = std::size_t{1} << 24U;

class Writer {
 public:
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void field(const Number& value) {
    auto bits = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof(Number); ++i, bits >>= 8U)
      out.push_back(static_cast<char>(bits & 255U));
  }
  template <class Value>
  requires std::is_enum_v<Value>
  void field(const Value& value, Value) { field(static_cast<std::uint8_t>(value)); }
  void field(const std::string& value) {
    field(static_cast<std::uint32_t>(value.size()));
    out += value;
  }
  template <class Value>
  void list(const std::vector<Value>& values, std::size_t) {
    field(static_cast<std::uint32_t>(values.size()));
    for (const Value& value : values) field(value);
  }

  std::string out;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class Number>
  requires std::is_arithmetic_v<Number>
  void field(Number& value) {
    const std::string_view bytes = take(sizeof(Number));
    if (bytes.empty()) return;
    std::uint64_t bits = 0;
    for (std::size_t i = sizeof(Number); i-- > 0;)
      bits = (bits << 8U) | static_cast<unsigned char>(bytes[i]);
    value = static_cast<Number>(bits);
  }
  template <class Value>
  requires std::is_enum_v<Value>
  void field(Value& value, Value last) {
    auto number = static_cast<std::uint8_t>(value);
    field(number);
    if (number > static_cast<std::uint8_t>(last)) {
      fail("a value is out of its range");
    } else {
      value = static_cast<Value>(number);
    }
  }
  void field(std::string& value) {
    const bool has_field = !rest_.empty();
    std::uint32_t size = 0;
    field(size);
    if (size > rest_.size()) {
      fail("a text is longer than what is left");
    } else if (has_field) {
      value = take(size);
    }
  }
  template <class Value>
  void list(std::vector<Value>& values, std::size_t most) {
    std::uint32_t count = 0;
    field(count);
    if (count > most || count > rest_.size()) {
      fail("a list is longer than what is left");
      return;
    }
    values.resize(count);
    for (Value& value : values) {
      if (rest_.empty()) fail("a list ends early");
      field(value);
    }
  }
  void fail(const char* why) {
    if (error_ == nullptr) error_ = why;
    rest_ = {};
  }
  const char* error() const { return error_; }

 private:
  // Empty at the end of the bytes: the field keeps its default.
  std::string_view take(std::size_t size) {
    if (rest_.empty()) return {};
    if (rest_.size() < size) {
      fail("it ends inside a field");
      return {};
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
  const char* error_ = nullptr;
};

// One list of fields for each record drives both directions.
template <class Io, class... Fields>
void all(Io& io, Fields&... fields) {
  (io.field(fields), ...);
}

template <class Io, class R>
void submitted(Io& io, R& r) {
  io.field(r.key.value);
  io.field(r.kind, JobKind::Embedding);
  io.field(r.cls, JobClass::Batch);
  io.field(r.holder, Holder::Connection);
  all(io, r.model.high, r.model.low, r.model_name);
  io.field(r.mode, Mode::Pin);
  io.field(r.pin_host);
  io.list(r.labels, kTextsMax);
  all(io, r.seed, r.submitted_ms, r.deadline_ms, r.prompt_tokens, r.max_tokens, r.choices);
  io.field(r.body_bytes);
  for (auto& word : r.body_hash) io.field(word);
  all(io, r.idempotency, r.correlation_id);
}

template <class Io, class R>
void dispatched(Io& io, R& r) {
  all(io, r.boot, r.attempt, r.host, r.worker, r.why, r.at_ms, r.exactness);
}

template <class Io, class R>
void started(Io& io, R& r) {
  all(io, r.boot, r.attempt, r.prompt_tokens, r.cached_tokens, r.at_ms);
}

template <class Io, class R>
void lost(Io& io, R& r) {
  all(io, r.boot, r.attempt);
  io.field(r.cause, LossCause::Refused);
  all(io, r.kills, r.moves, r.at_ms);
}

template <class Io, class R>
void stopped(Io& io, R& r) {
  io.field(r.cause, StopCause::ShutDown);
  io.field(r.at_ms);
}

template <class Io, class R>
void ended(Io& io, R& r) {
  io.field(r.state, JobState::Cancelled);
  io.field(r.code, ErrorCode::Unsupported);
  all(io, r.message, r.stop_reason, r.prompt_tokens, r.tokens_out, r.attempts, r.device_ms, r.at_ms,
      r.why);
}

template <class Io, class R>
void fields(Io& io, R& record) {
  using Plain = std::remove_const_t<R>;
  if constexpr (std::is_same_v<Plain, SubmittedRecord>) submitted(io, record);
  if constexpr (std::is_same_v<Plain, DispatchedRecord>) dispatched(io, record);
  if constexpr (std::is_same_v<Plain, StartedRecord>) started(io, record);
  if constexpr (std::is_same_v<Plain, LostRecord>) lost(io, record);
  if constexpr (std::is_same_v<Plain, StopRecord>) stopped(io, record);
  if constexpr (std::is_same_v<Plain, EndedRecord>) ended(io, record);
}

template <std::size_t Kind>
Result<Record> decode_as(std::string_view bytes) {
  std::variant_alternative_t<Kind, Record> record;
  Reader reader(bytes);
  fields(reader, record);
  if (reader.error() != nullptr) {
    return Error{ErrorCode::Corrupt, "stored record of kind " + std::to_string(Kind) + ", " +
                                         std::to_string(bytes.size()) +
                                         " bytes: " + reader.error()};
  }
  return Record(std::move(record));
}

Error corrupt(const char* what, const Reader& reader) {
  return {ErrorCode::Corrupt, std::string(what) + ": " + reader.error()};
}

}  // namespace

std::string encode_record(const Record& record) {
  Writer writer;
  std::visit([&writer](const auto& value) { fields(writer, value); }, record);
  return std::move(writer.out);
}

Result<Record> decode_record(std::uint8_t kind, std::string_view bytes) {
  static_assert(std::variant_size_v<Record> == 6);
  switch (kind) {
    case 0:
      return decode_as<0>(bytes);
    case 1:
      return decode_as<1>(bytes);
    case 2:
      return decode_as<2>(bytes);
    case 3:
      return decode_as<3>(bytes);
    case 4:
      return decode_as<4>(bytes);
    case 5:
      return decode_as<5>(bytes);
    default:
      return Error{ErrorCode::Corrupt, "stored record of kind " + std::to_string(kind) +
                                           ": this program knows kinds 0 to 5; a newer one wrote "
                                           "it"};
  }
}

std::string encode_position(const Position& position) {
  Writer writer;
  writer.list(position.told, kChoicesMax);
  return std::move(writer.out);
}

Result<Position> decode_position(std::string_view bytes) {
  Reader reader(bytes);
  Position position;
  reader.list(position.told, kChoicesMax);
  if (reader.error() != nullptr) return corrupt("stored position", reader);
  return position;
}

std::string encode_ids(const std::vector<ChoiceIds>& ids) {
  Writer writer;
  writer.field(static_cast<std::uint32_t>(ids.size()));
  for (const ChoiceIds& choice : ids) {
    writer.field(choice.choice);
    writer.list(choice.ids, kIdsMax);
  }
  return std::move(writer.out);
}

Result<std::vector<ChoiceIds>> decode_ids(std::string_view bytes) {
  Reader reader(bytes);
  std::uint32_t count = 0;
  reader.field(count);
  if (count > kChoicesMax) reader.fail("more choices than an answer can have");
  std::vector<ChoiceIds> ids;
  for (std::uint32_t i = 0; i < count && reader.error() == nullptr; ++i) {
    ChoiceIds& choice = ids.emplace_back();
    reader.field(choice.choice);
    reader.list(choice.ids, kIdsMax);
  }
  if (reader.error() != nullptr) return corrupt("stored ids", reader);
  return ids;
}

}  // namespace llorch::fleet
