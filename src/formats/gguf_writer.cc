#include "formats/gguf_writer.h"

#include <fmt/format.h>

#include <memory>
#include <set>
#include <type_traits>
#include <utility>

#include "base/file.h"
#include "base/utf8.h"
#include "formats/gguf_format.h"
#include "formats/number_types.h"

namespace llorch::formats {
namespace {

using Bytes = std::vector<std::byte>;

void append(Bytes& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

template <class T>
void append_number(Bytes& to, T value) {
  append(to, std::as_bytes(std::span(&value, 1)));
}

void append_text(Bytes& to, std::string_view text) {
  append_number<std::uint64_t>(to, text.size());
  append(to, std::as_bytes(std::span(text)));
}

void append_type(Bytes& to, ElementType type) {
  append_number(to, static_cast<std::uint32_t>(type));
}

void append_array_head(Bytes& to, ElementType type, std::uint64_t count) {
  append_type(to, ElementType::Array);
  append_type(to, type);
  append_number(to, count);
}

template <class T>
constexpr ElementType element_type() {
  if constexpr (std::is_same_v<T, bool>) return ElementType::Bool;
  if constexpr (std::is_same_v<T, float>) return ElementType::F32;
  if constexpr (std::is_same_v<T, double>) return ElementType::F64;
  if constexpr (sizeof(T) == 1) return std::is_signed_v<T> ? ElementType::I8 : ElementType::U8;
  if constexpr (sizeof(T) == 2) return std::is_signed_v<T> ? ElementType::I16 : ElementType::U16;
  if constexpr (sizeof(T) == 4) return std::is_signed_v<T> ? ElementType::I32 : ElementType::U32;
  return std::is_signed_v<T> ? ElementType::I64 : ElementType::U64;
}

ElementType default_type(const Value& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    return *number == static_cast<std::int32_t>(*number) ? ElementType::I32 : ElementType::I64;
  }
  if (const auto* number = std::get_if<std::uint64_t>(&value)) {
    return *number == static_cast<std::uint32_t>(*number) ? ElementType::U32 : ElementType::U64;
  }
  return ElementType::F32;
}

// A number as `type`, which must be one that holds numbers of this kind.
template <class Held>
void append_as(Bytes& to, ElementType type, const Held& held) {
  bool is_written = false;
  if constexpr (std::is_arithmetic_v<Held>) {
    is_written = visit_number(
        type, [&](auto number) { append_number(to, static_cast<decltype(number)>(held)); });
  }
  CHECK(is_written, "a number needs a type that holds numbers");
}

Result<std::uint64_t> checked_tensor_bytes(const GgufTensor& tensor) {
  if (tensor::info(tensor.dtype).ggml_id < 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("GGUF has no type for {}", tensor::name(tensor.dtype))};
  }
  const Result<std::int64_t> bytes = gguf::tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes.ok()) return bytes.error();
  const auto size = static_cast<std::uint64_t>(*bytes);
  if (!tensor.produce && tensor.bytes.size() != size) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} bytes given, but shape {} of {} has {}", tensor.bytes.size(),
                             tensor.shape.to_string(), tensor::name(tensor.dtype), size)};
  }
  return size;
}

// The tensor records, and in `sizes` the bytes of each. Data lies in order, each tensor aligned.
Status append_records(Bytes& to, std::span<const GgufTensor> tensors, std::uint64_t alignment,
                      std::vector<std::uint64_t>& sizes) {
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    if (Status sound = gguf::check_tensor_name(tensor.name); !sound.ok()) return sound;
    if (!names.insert(tensor.name).second) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("tensor {} was added twice", base::quoted(tensor.name))};
    }
    const Result<std::uint64_t> bytes = checked_tensor_bytes(tensor);
    if (!bytes.ok()) return bytes.error().in(fmt::format("tensor {}", base::quoted(tensor.name)));
    append_text(to, tensor.name);
    append_number(to, static_cast<std::uint32_t>(tensor.shape.rank()));
    for (int axis = tensor.shape.rank() - 1; axis >= 0; --axis)
      append_number(to, tensor.shape[axis]);
    append_number(to, tensor::info(tensor.dtype).ggml_id);
    append_number(to, offset);
    sizes.push_back(*bytes);
    std::uint64_t end = 0;
    if (__builtin_add_overflow(offset, *bytes, &end) || end >= std::uint64_t{1} << 62) {
      return Error{ErrorCode::TooLarge, "the tensors together have more than 2^62 bytes"};
    }
    offset = gguf::align_up(end, alignment);
  }
  return ok_status();
}

// Exactly `size` bytes, whoever delivers them.
Status write_content(base::AtomicFile& file, const GgufTensor& tensor, std::uint64_t size) {
  if (!tensor.produce) return file.write(tensor.bytes);
  std::uint64_t left = size;
  const GgufTensor::Sink sink = [&](std::span<const std::byte> piece) -> Status {
    if (piece.size() > left) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("tensor {}: more than its {} bytes were produced",
                               base::quoted(tensor.name), size)};
    }
    left -= piece.size();
    return file.write(piece);
  };
  if (Status produced = tensor.produce(sink); !produced.ok()) return produced;
  if (left == 0) return ok_status();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("tensor {}: {} of its {} bytes were not produced",
                           base::quoted(tensor.name), left, size)};
}

}  // namespace

template <class T>
void GgufWriter::add_number(std::string_view key, T value) {
  Entry& entry = entries_.emplace_back(Entry{std::string(key), {}});
  append_type(entry.value, element_type<T>());
  append_number(entry.value, value);
}

template <class T>
void GgufWriter::add_numbers(std::string_view key, std::span<const T> values) {
  add_array(key, {element_type<T>(), values.size(), std::as_bytes(values)});
}

void GgufWriter::add_text(std::string_view key, std::string_view value) {
  Entry& entry = entries_.emplace_back(Entry{std::string(key), {}});
  append_type(entry.value, ElementType::String);
  append_text(entry.value, value);
}

void GgufWriter::add_array(std::string_view key, const ArrayView& array) {
  Entry& entry = entries_.emplace_back(Entry{std::string(key), {}});
  append_array_head(entry.value, array.type, array.count);
  append(entry.value, array.bytes);
}

void GgufWriter::add_value(std::string_view key, const Value& value,
                           std::optional<ElementType> stored) {
  if (const auto* text = std::get_if<std::string>(&value)) return add_text(key, *text);
  if (const auto* array = std::get_if<ArrayView>(&value)) return add_array(key, *array);
  if (const auto* flag = std::get_if<bool>(&value)) return add_number(key, *flag);
  const ElementType type = stored.value_or(default_type(value));
  Entry& entry = entries_.emplace_back(Entry{std::string(key), {}});
  append_type(entry.value, type);
  std::visit([&](const auto& held) { append_as(entry.value, type, held); }, value);
}

void GgufWriter::add_tensor(GgufTensor tensor) {
  tensors_.push_back(std::move(tensor));
}

Result<GgufWriter::Header> GgufWriter::make_header() const {
  if (!gguf::is_alignment(alignment_)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("alignment {} is not a power of two", alignment_)};
  }
  const bool store_alignment = alignment_ != gguf::kDefaultAlignment;
  Header header;
  append(header.bytes, std::as_bytes(std::span(gguf::kMagic)));
  append_number(header.bytes, gguf::kVersion);
  append_number<std::uint64_t>(header.bytes, tensors_.size());
  append_number<std::uint64_t>(header.bytes, entries_.size() + (store_alignment ? 1 : 0));
  std::set<std::string_view> keys;
  if (store_alignment) {
    keys.insert(gguf::kAlignmentKey);
    append_text(header.bytes, gguf::kAlignmentKey);
    append_type(header.bytes, ElementType::U32);
    append_number(header.bytes, alignment_);
  }
  for (const Entry& entry : entries_) {
    if (Status sound = gguf::check_key(entry.key); !sound.ok()) return sound.error();
    if (!keys.insert(entry.key).second) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("key {} was added twice", base::quoted(entry.key))};
    }
    append_text(header.bytes, entry.key);
    append(header.bytes, entry.value);
  }
  Status appended = append_records(header.bytes, tensors_, alignment_, header.tensor_bytes);
  if (!appended.ok()) return appended.error();
  return header;
}

Status GgufWriter::write(const std::filesystem::path& path) const {
  const Result<Header> header = make_header();
  if (!header.ok()) return header.error();
  const Result<std::unique_ptr<base::AtomicFile>> file =
      base::AtomicFile::create(path, base::FileAccess::Everybody);
  if (!file.ok()) return file.error();
  if (Status written = (*file)->write(header->bytes); !written.ok()) return written;
  std::uint64_t position = header->bytes.size();
  const auto pad = [&]() -> Status {
    const Bytes zeros(gguf::align_up(position, alignment_) - position);
    position += zeros.size();
    return (*file)->write(zeros);
  };
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (Status padded = pad(); !padded.ok()) return padded;
    const std::uint64_t size = header->tensor_bytes[i];
    if (Status written = write_content(**file, tensors_[i], size); !written.ok()) return written;
    position += size;
  }
  // Padding also after the last tensor, as the format's own tools write it.
  if (Status padded = pad(); !padded.ok()) return padded;
  return (*file)->commit();
}

template void GgufWriter::add_number<bool>(std::string_view, bool);
template void GgufWriter::add_number<std::uint8_t>(std::string_view, std::uint8_t);
template void GgufWriter::add_number<std::int8_t>(std::string_view, std::int8_t);
template void GgufWriter::add_number<std::uint16_t>(std::string_view, std::uint16_t);
template void GgufWriter::add_number<std::int16_t>(std::string_view, std::int16_t);
template void GgufWriter::add_number<std::uint32_t>(std::string_view, std::uint32_t);
template void GgufWriter::add_number<std::int32_t>(std::string_view, std::int32_t);
template void GgufWriter::add_number<std::uint64_t>(std::string_view, std::uint64_t);
template void GgufWriter::add_number<std::int64_t>(std::string_view, std::int64_t);
template void GgufWriter::add_number<float>(std::string_view, float);
template void GgufWriter::add_number<double>(std::string_view, double);
template void GgufWriter::add_numbers<bool>(std::string_view, std::span<const bool>);
template void GgufWriter::add_numbers<std::uint8_t>(std::string_view,
                                                    std::span<const std::uint8_t>);
template void GgufWriter::add_numbers<std::int8_t>(std::string_view, std::span<const std::int8_t>);
template void GgufWriter::add_numbers<std::uint16_t>(std::string_view,
                                                     std::span<const std::uint16_t>);
template void GgufWriter::add_numbers<std::int16_t>(std::string_view,
                                                    std::span<const std::int16_t>);
template void GgufWriter::add_numbers<std::uint32_t>(std::string_view,
                                                     std::span<const std::uint32_t>);
template void GgufWriter::add_numbers<std::int32_t>(std::string_view,
                                                    std::span<const std::int32_t>);
template void GgufWriter::add_numbers<std::uint64_t>(std::string_view,
                                                     std::span<const std::uint64_t>);
template void GgufWriter::add_numbers<std::int64_t>(std::string_view,
                                                    std::span<const std::int64_t>);
template void GgufWriter::add_numbers<float>(std::string_view, std::span<const float>);
template void GgufWriter::add_numbers<double>(std::string_view, std::span<const double>);

}  // namespace llorch::formats
