#include "compute/host_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "compute/dequantize.h"

namespace llorch::compute {
namespace {

constexpr std::int64_t kAlignmentBytes = 64;

Error bad_source(const WeightSource& source, ErrorCode code, std::string_view what) {
  return {code, fmt::format("{} ({} x {} of {}): {}", source.name, source.rows, source.cols,
                            tensor::name(source.dtype), what)};
}

// Elements from the first to one past the last that the strides reach; nothing on overflow.
std::optional<std::int64_t> reach_elems(const WeightSource& source) {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t reach = 0;
  if (__builtin_mul_overflow(source.rows - 1, source.row_stride, &rows) ||
      __builtin_mul_overflow(source.cols - 1, source.col_stride, &cols) ||
      __builtin_add_overflow(rows, cols, &reach) || __builtin_add_overflow(reach, 1, &reach)) {
    return std::nullopt;
  }
  return reach;
}

Status validate(const WeightSource& source) {
  if (!can_dequantize(source.dtype)) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("not supported: {} in {}", tensor::name(source.dtype), source.name)};
  }
  if (source.rows <= 0 || source.cols <= 0 || source.row_stride < 0 || source.col_stride < 0) {
    return bad_source(source, ErrorCode::InvalidArgument, "sizes must be positive");
  }
  const std::int64_t block = tensor::info(source.dtype).block_elems;
  if (block > 1 &&
      (source.col_stride != 1 || source.cols % block != 0 || source.row_stride % block != 0)) {
    return bad_source(source, ErrorCode::Unsupported,
                      fmt::format("rows must be whole, contiguous blocks of {} values", block));
  }
  const auto reach = reach_elems(source);
  const auto bytes = reach ? tensor::storage_bytes(source.dtype, *reach) : std::nullopt;
  if (!bytes || static_cast<std::uint64_t>(*bytes) > source.bytes.size()) {
    return bad_source(source, ErrorCode::Corrupt,
                      fmt::format("strides {} and {} reach beyond its {} bytes", source.row_stride,
                                  source.col_stride, source.bytes.size()));
  }
  return ok_status();
}

bool serves_in_place(const WeightSource& source) {
  const tensor::DTypeInfo& type = tensor::info(source.dtype);
  const auto address = reinterpret_cast<std::uintptr_t>(source.bytes.data());
  // Blocks are read bytewise; plain numbers as what they are.
  const bool aligned =
      type.block_elems > 1 || address % static_cast<std::uintptr_t>(type.block_bytes) == 0;
  return aligned && source.col_stride == 1 &&
         (source.row_stride == source.cols || source.rows == 1);
}

void gather_rows(const WeightSource& source, std::byte* out) {
  const tensor::DTypeInfo& type = tensor::info(source.dtype);
  const std::int64_t unit = type.block_bytes;
  for (std::int64_t row = 0; row < source.rows; ++row) {
    const std::byte* from = source.bytes.data() + row * source.row_stride / type.block_elems * unit;
    if (source.col_stride == 1) {
      const std::int64_t bytes = source.cols / type.block_elems * unit;
      std::memcpy(out, from, static_cast<std::size_t>(bytes));
      out += bytes;
      continue;
    }
    for (std::int64_t col = 0; col < source.cols; ++col, out += unit) {
      std::memcpy(out, from + col * source.col_stride * unit, static_cast<std::size_t>(unit));
    }
  }
}

// Not zeroed.
Result<Buffer> allocate_aligned(std::int64_t bytes, std::int64_t alignment) {
  void* memory = nullptr;
  if (bytes >= 0 && bytes <= INT64_MAX - alignment) {
    const std::int64_t rounded = (std::max<std::int64_t>(bytes, 1) + kAlignmentBytes - 1) /
                                 kAlignmentBytes * kAlignmentBytes;
    // Unlike aligned_alloc, this takes sizes that are no multiple of the alignment.
    if (::posix_memalign(&memory, static_cast<std::size_t>(alignment),
                         static_cast<std::size_t>(rounded)) != 0)
      memory = nullptr;
  }
  if (memory == nullptr) {
    return Error{ErrorCode::OutOfMemory,
                 fmt::format("cannot allocate {} bytes of host memory", bytes)};
  }
  return Buffer(memory, bytes, std::free);
}

}  // namespace

Result<Buffer> allocate_host(std::int64_t bytes) {
  Result<Buffer> buffer = allocate_host_pages(bytes);
  if (buffer.ok()) {
    std::memset(buffer->data(), 0, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
  }
  return buffer;
}

Result<Buffer> allocate_host_pages(std::int64_t bytes) {
  constexpr std::int64_t kPageBytes = std::int64_t{2} << 20;
  if (bytes < kPageBytes) return allocate_aligned(bytes, kAlignmentBytes);
  Result<Buffer> buffer = allocate_aligned(bytes, kPageBytes);
#ifdef MADV_HUGEPAGE
  // A wish: without large pages everything is as right, and slower.
  if (buffer.ok()) (void)::madvise(buffer->data(), static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
#endif
  return buffer;
}

Result<HostPlacement> place_host_weight(const WeightSource& source) {
  if (const Status status = validate(source); !status.ok()) return status.error();
  std::int64_t elems = 0;
  const auto bytes = __builtin_mul_overflow(source.rows, source.cols, &elems)
                         ? std::nullopt
                         : tensor::storage_bytes(source.dtype, elems);
  if (!bytes) return bad_source(source, ErrorCode::InvalidArgument, "its size overflows");
  return HostPlacement{serves_in_place(source), *bytes};
}

Result<Weight> load_host_weight(const WeightSource& source) {
  const Result<HostPlacement> placement = place_host_weight(source);
  if (!placement.ok()) return placement.error();
  Weight weight;
  weight.dtype = source.dtype;
  weight.rows = source.rows;
  weight.cols = source.cols;
  weight.use = source.use;
  if (placement->in_place) {
    weight.data = source.bytes.data();
    return weight;
  }
  Result<Buffer> storage = allocate_host(placement->bytes);
  if (!storage.ok()) return storage.error().in(source.name);
  gather_rows(source, static_cast<std::byte*>(storage->data()));
  weight.data = storage->data();
  weight.storage = storage.take();
  return weight;
}

std::int64_t row_bytes(const Weight& weight) {
  const tensor::DTypeInfo& type = tensor::info(weight.dtype);
  return weight.cols / type.block_elems * type.block_bytes;
}

}  // namespace llorch::compute
