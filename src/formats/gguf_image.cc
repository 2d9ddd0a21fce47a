#include "formats/gguf_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "formats/gguf_format.h"
#include "formats/number_types.h"

namespace llorch::formats {
namespace {

// Limits on what we accept from outside, beyond the format's own (gguf_format.h). Lengths and
// counts are also held against the bytes that remain, so nothing is allocated for content that is
// not there.
constexpr std::uint64_t kTensorsMax = 65'536;    // 61 layers of 256 separate experts make 47,000
constexpr std::uint64_t kKeyValuesMax = 65'536;  // real files have under 100

// The least a key with its value and a tensor record can take.
constexpr std::uint64_t kKeyValueBytesMin = 8 + 1 + 4 + 1;
constexpr std::uint64_t kTensorRecordBytesMin = 8 + 1 + 4 + 8 + 4 + 8;

Error corrupt(std::string message) {
  return {ErrorCode::Corrupt, std::move(message)};
}
Error unsupported(std::string message) {
  return {ErrorCode::Unsupported, std::move(message)};
}

// Where we are in the image. Every read is checked against what remains; `what` names it in the
// error.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> image) : image_(image) {}

  std::size_t offset() const { return offset_; }
  std::size_t remaining() const { return image_.size() - offset_; }

  Result<std::span<const std::byte>> take(std::uint64_t count, std::string_view what) {
    if (count > remaining()) {
      return corrupt(fmt::format("{} at byte {} needs {} bytes, but the file ends after {} more",
                                 what, offset_, count, remaining()));
    }
    const auto taken = image_.subspan(offset_, count);
    offset_ += count;
    return taken;
  }

  template <class T>
  Result<T> number(std::string_view what) {
    const auto bytes = take(sizeof(T), what);
    if (!bytes.ok()) return bytes.error();
    T value;
    std::memcpy(&value, bytes->data(), sizeof(T));
    return value;
  }

  Result<std::string_view> text(std::string_view what) {
    const Result<std::uint64_t> length = number<std::uint64_t>(what);
    if (!length.ok()) return length.error();
    const auto bytes = take(*length, what);
    if (!bytes.ok()) return bytes.error();
    return std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  }

 private:
  std::span<const std::byte> image_;
  std::size_t offset_ = 0;
};

struct Counts {
  std::uint64_t tensors = 0;
  std::uint64_t key_values = 0;
};

Error wrong_magic(std::span<const std::byte> found) {
  const std::string_view text(reinterpret_cast<const char*>(found.data()), found.size());
  if (text == "FUGG") return unsupported("big-endian GGUF; convert the file to little-endian");
  if (text == "lmgg" || text == "fmgg" || text == "tjgg") {
    return unsupported("a GGML file from before GGUF; convert it to GGUF");
  }
  return corrupt(
      fmt::format("not a GGUF file: it starts with {}, not \"GGUF\"", base::quoted(text)));
}

Status check_version(std::uint32_t version) {
  if (version >= gguf::kVersionMin && version <= gguf::kVersion) return ok_status();
  const std::uint32_t swapped = __builtin_bswap32(version);
  if (swapped >= 1 && swapped <= gguf::kVersion) {
    return unsupported(
        fmt::format("big-endian GGUF version {}; convert the file to little-endian", swapped));
  }
  return unsupported(fmt::format(
      "GGUF version {}; supported are {} and {}{}", version, gguf::kVersionMin, gguf::kVersion,
      version == 1 ? ": convert the file again with current tools" : ""));
}

Status check_count(std::string_view what, std::uint64_t count, std::uint64_t count_max,
                   std::uint64_t possible) {
  if (count > possible) {
    return corrupt(fmt::format("{} {} announced, but the file has room for {} at most", count, what,
                               possible));
  }
  if (count > count_max) {
    return unsupported(
        fmt::format("{} {} announced, more than the {} supported", count, what, count_max));
  }
  return ok_status();
}

Result<Counts> read_counts(Cursor& cursor) {
  const auto magic = cursor.take(gguf::kMagic.size(), "the magic number");
  if (!magic.ok()) return magic.error();
  if (std::memcmp(magic->data(), gguf::kMagic.data(), gguf::kMagic.size()) != 0)
    return wrong_magic(*magic);
  const auto version = cursor.number<std::uint32_t>("the version");
  if (!version.ok()) return version.error();
  if (Status supported = check_version(*version); !supported.ok()) return supported.error();
  const auto tensors = cursor.number<std::uint64_t>("the tensor count");
  if (!tensors.ok()) return tensors.error();
  const auto key_values = cursor.number<std::uint64_t>("the key count");
  if (!key_values.ok()) return key_values.error();
  const std::uint64_t rest = cursor.remaining();
  if (Status fits = check_count("tensors", *tensors, kTensorsMax, rest / kTensorRecordBytesMin);
      !fits.ok()) {
    return fits.error();
  }
  if (Status fits = check_count("keys", *key_values, kKeyValuesMax, rest / kKeyValueBytesMin);
      !fits.ok()) {
    return fits.error();
  }
  return Counts{*tensors, *key_values};
}

Result<ElementType> read_type(Cursor& cursor) {
  const auto type = cursor.number<std::uint32_t>("the value type");
  if (!type.ok()) return type.error();
  if (*type > gguf::kElementTypeLast) {
    return corrupt(
        fmt::format("value type {}; the format knows 0 to {}", *type, gguf::kElementTypeLast));
  }
  return static_cast<ElementType>(*type);
}

// Walks `count` strings without looking at their bytes.
Status skip_texts(Cursor& cursor, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (const auto text = cursor.text("a string of an array"); !text.ok()) return text.error();
  }
  return ok_status();
}

Status check_flags(std::span<const std::byte> flags) {
  const auto bad =
      std::find_if(flags.begin(), flags.end(), [](std::byte flag) { return flag > std::byte{1}; });
  if (bad == flags.end()) return ok_status();
  return corrupt(fmt::format("a bool holds {}, not 0 or 1", std::to_integer<int>(*bad)));
}

Result<Value> read_array(Cursor& cursor) {
  const Result<ElementType> type = read_type(cursor);
  if (!type.ok()) return type.error();
  // No writer makes these and nothing reads them; refusing also bounds the recursion.
  if (*type == ElementType::Array) return unsupported("arrays of arrays are not supported");
  const auto count = cursor.number<std::uint64_t>("the array length");
  if (!count.ok()) return count.error();
  const bool strings = *type == ElementType::String;
  const std::uint64_t element_bytes_min = strings ? sizeof(std::uint64_t) : element_bytes(*type);
  if (*count > cursor.remaining() / element_bytes_min) {
    return corrupt(fmt::format("an array of {} {} announced, but only {} bytes remain", *count,
                               name(*type), cursor.remaining()));
  }
  Cursor walk = cursor;
  if (strings) {
    if (Status walked = skip_texts(walk, *count); !walked.ok()) return walked.error();
  }
  const std::uint64_t size = strings ? walk.offset() - cursor.offset() : *count * element_bytes_min;
  const auto bytes = cursor.take(size, "an array");
  if (!bytes.ok()) return bytes.error();
  if (*type == ElementType::Bool) {
    if (Status sound = check_flags(*bytes); !sound.ok()) return sound.error();
  }
  return Value(ArrayView{*type, *count, *bytes});
}

// A number stored as T, held as the widest of its kind.
template <class T>
Result<Value> read_number(Cursor& cursor) {
  using Integer = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  using Held = std::conditional_t<std::is_floating_point_v<T>, double, Integer>;
  const Result<T> stored = cursor.number<T>("a value");
  if (!stored.ok()) return stored.error();
  return Value(static_cast<Held>(*stored));
}

Result<Value> read_flag(Cursor& cursor) {
  const auto byte = cursor.take(1, "a value");
  if (!byte.ok()) return byte.error();
  if (Status sound = check_flags(*byte); !sound.ok()) return sound.error();
  return Value(byte->front() == std::byte{1});
}

Result<Value> read_text(Cursor& cursor) {
  const Result<std::string_view> text = cursor.text("a string");
  if (!text.ok()) return text.error();
  return Value(std::string(*text));
}

Result<Value> read_value(Cursor& cursor, ElementType type) {
  if (type == ElementType::Bool) return read_flag(cursor);
  if (type == ElementType::String) return read_text(cursor);
  if (type == ElementType::Array) return read_array(cursor);
  Result<Value> value = corrupt("unknown value type");
  visit_number(type, [&](auto number) { value = read_number<decltype(number)>(cursor); });
  return value;
}

Result<Metadata> read_metadata(Cursor& cursor, std::uint64_t count) {
  Metadata metadata;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Result<std::string_view> key = cursor.text("a key");
    if (!key.ok()) return key.error();
    if (Status sound = gguf::check_key(*key); !sound.ok()) return sound.error();
    const Result<ElementType> type = read_type(cursor);
    if (!type.ok()) return type.error().in(fmt::format("key {}", base::quoted(*key)));
    Result<Value> value = read_value(cursor, *type);
    if (!value.ok()) return value.error().in(fmt::format("key {}", base::quoted(*key)));
    if (Status added = metadata.add(std::string(*key), value.take(), *type); !added.ok())
      return added.error();
  }
  return metadata;
}

Result<std::uint64_t> read_alignment(const Metadata& metadata) {
  const Result<std::int64_t> stored =
      metadata.integer_or(gguf::kAlignmentKey, gguf::kDefaultAlignment);
  if (!stored.ok()) return stored.error();
  const auto alignment = static_cast<std::uint64_t>(*stored);
  if (!gguf::is_alignment(alignment)) {
    return corrupt(
        fmt::format("{} is {}, not a power of two up to 2^31", gguf::kAlignmentKey, *stored));
  }
  return alignment;
}

// What the header says about one tensor; its place is checked once the header's end is known.
struct TensorRecord {
  std::string name;
  tensor::DType dtype = tensor::DType::F32;
  tensor::Shape shape;
  std::uint64_t offset = 0;  // from the start of the data
  std::uint64_t bytes = 0;
};

// Dimensions, stored fastest first, as a Shape.
Result<tensor::Shape> read_shape(Cursor& cursor) {
  const auto rank = cursor.number<std::uint32_t>("the dimension count");
  if (!rank.ok()) return rank.error();
  if (*rank < 1 || *rank > gguf::kRankMax) {
    return corrupt(fmt::format("{} dimensions; the format allows 1 to {}", *rank, gguf::kRankMax));
  }
  std::array<std::int64_t, gguf::kRankMax> dims{};
  for (std::uint32_t axis = *rank; axis-- > 0;) {
    const auto dim = cursor.number<std::int64_t>("a dimension");
    if (!dim.ok()) return dim.error();
    dims[axis] = *dim;
  }
  return tensor::Shape::make({dims.data(), *rank});
}

Result<TensorRecord> read_tensor_fields(Cursor& cursor, std::string_view name) {
  TensorRecord record;
  record.name = name;
  Result<tensor::Shape> shape = read_shape(cursor);
  if (!shape.ok()) return shape.error();
  record.shape = *shape;
  const auto type = cursor.number<std::uint32_t>("the tensor type");
  if (!type.ok()) return type.error();
  const std::optional<tensor::DType> dtype = tensor::dtype_from_ggml_id(*type);
  if (!dtype) {
    return unsupported(
        fmt::format("tensor type {} is unknown here or was removed from the format", *type));
  }
  record.dtype = *dtype;
  const auto offset = cursor.number<std::uint64_t>("the tensor offset");
  if (!offset.ok()) return offset.error();
  record.offset = *offset;
  const Result<std::int64_t> bytes = gguf::tensor_bytes(record.dtype, record.shape);
  if (!bytes.ok()) return bytes.error();
  record.bytes = static_cast<std::uint64_t>(*bytes);
  return record;
}

Result<std::vector<TensorRecord>> read_tensor_records(Cursor& cursor, std::uint64_t count) {
  std::vector<TensorRecord> records;
  records.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const Result<std::string_view> name = cursor.text("a tensor name");
    if (!name.ok()) return name.error();
    if (Status sound = gguf::check_tensor_name(*name); !sound.ok()) return sound.error();
    Result<TensorRecord> record = read_tensor_fields(cursor, *name);
    if (!record.ok()) return record.error().in(fmt::format("tensor {}", base::quoted(*name)));
    records.push_back(record.take());
  }
  return records;
}

Status check_place(const TensorRecord& record, std::uint64_t data_bytes, std::uint64_t alignment) {
  if (record.offset % alignment != 0) {
    return corrupt(fmt::format("tensor {}: offset {} is not a multiple of the alignment {}",
                               base::quoted(record.name), record.offset, alignment));
  }
  if (record.bytes > data_bytes || record.offset > data_bytes - record.bytes) {
    return corrupt(
        fmt::format("tensor {}: {} bytes at offset {} of the data, which has only {}; the file may "
                    "be an incomplete download",
                    base::quoted(record.name), record.bytes, record.offset, data_bytes));
  }
  return ok_status();
}

Status check_overlaps(std::span<const TensorRecord> records) {
  std::vector<const TensorRecord*> by_offset;
  for (const TensorRecord& record : records) {
    if (record.bytes > 0) by_offset.push_back(&record);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const TensorRecord* a, const TensorRecord* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const TensorRecord& before = *by_offset[i - 1];
    if (before.offset + before.bytes > by_offset[i]->offset) {
      return corrupt(fmt::format("tensors {} and {} share bytes", base::quoted(before.name),
                                 base::quoted(by_offset[i]->name)));
    }
  }
  return ok_status();
}

}  // namespace

Result<GgufImage> parse_gguf_image(std::span<const std::byte> image) {
  Cursor cursor(image);
  const Result<Counts> counts = read_counts(cursor);
  if (!counts.ok()) return counts.error();
  Result<Metadata> metadata = read_metadata(cursor, counts->key_values);
  if (!metadata.ok()) return metadata.error();
  const Result<std::uint64_t> alignment = read_alignment(*metadata);
  if (!alignment.ok()) return alignment.error();
  // The keys took their share: look again before reserving room for the tensors.
  if (Status fits = check_count("tensors", counts->tensors, kTensorsMax,
                                cursor.remaining() / kTensorRecordBytesMin);
      !fits.ok()) {
    return fits.error();
  }
  Result<std::vector<TensorRecord>> records = read_tensor_records(cursor, counts->tensors);
  if (!records.ok()) return records.error();

  // A file without tensor bytes may end before its data would start.
  const std::uint64_t data_start =
      std::min<std::uint64_t>(gguf::align_up(cursor.offset(), *alignment), image.size());
  const std::span<const std::byte> data = image.subspan(data_start);
  for (const TensorRecord& record : *records) {
    if (Status sound = check_place(record, data.size(), *alignment); !sound.ok())
      return sound.error();
  }
  if (Status sound = check_overlaps(*records); !sound.ok()) return sound.error();

  GgufImage parsed{metadata.take(), {}};
  parsed.tensors.reserve(records->size());
  for (TensorRecord& record : *records) {
    parsed.tensors.push_back({.name = std::move(record.name),
                              .dtype = record.dtype,
                              .shape = record.shape,
                              .bytes = data.subspan(record.offset, record.bytes),
                              .strides = {}});
  }
  return parsed;
}

}  // namespace llorch::formats
