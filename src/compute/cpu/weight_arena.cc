#include "compute/cpu/weight_arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace llorch::compute {
namespace {

constexpr std::int64_t kPageBytes = std::int64_t{2} << 20;
constexpr std::int64_t kChunkBytes = std::int64_t{64} << 20;
constexpr std::int64_t kLineBytes = 64;

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Wishes: without large pages everything is as right, and slower.
void wish_for_large_pages(char* begin, std::int64_t bytes) {
#ifdef MADV_HUGEPAGE
  (void)::madvise(begin, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
#endif
}
// For a page that was written in part.
void make_large(char* page) {
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
  (void)::madvise(page, static_cast<std::size_t>(kPageBytes), MADV_COLLAPSE);
}

}  // namespace

// Address space; its users are the buffers in it, and the arena while it fills it.
struct WeightArena::Chunk {
  void* mapped;
  std::int64_t mapped_bytes;
  char* begin;  // of a page
  std::int64_t bytes;
  std::atomic<std::int64_t> users = 1;
};

void WeightArena::release(Chunk* chunk) {
  if (chunk == nullptr || chunk->users.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  ::munmap(chunk->mapped, static_cast<std::size_t>(chunk->mapped_bytes));
  delete chunk;
}

WeightArena::~WeightArena() {
  release(chunk_);
}

Result<Buffer> WeightArena::take(std::int64_t bytes) {
  const Error refused = {ErrorCode::OutOfMemory,
                         fmt::format("cannot allocate {} bytes of host memory", bytes)};
  if (bytes < 0 || bytes > INT64_MAX / 2) return refused;
  // In front of each buffer a line that says whose it is.
  const std::int64_t wanted = kLineBytes + round_up(bytes, kLineBytes);
  if (chunk_ == nullptr || chunk_->bytes - used_ < wanted) {
    const std::int64_t size = round_up(std::max(wanted, kChunkBytes), kPageBytes);
    const std::int64_t mapped_bytes = size + kPageBytes;
    void* mapped = ::mmap(nullptr, static_cast<std::size_t>(mapped_bytes), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return refused;
    const auto address = reinterpret_cast<std::uintptr_t>(mapped);
    const std::uintptr_t page = kPageBytes;
    char* begin = static_cast<char*>(mapped) + ((page - address % page) % page);
    release(chunk_);
    chunk_ =
        new Chunk{.mapped = mapped, .mapped_bytes = mapped_bytes, .begin = begin, .bytes = size};
    used_ = large_ = 0;
  }
  char* line = chunk_->begin + used_;
  const std::int64_t before = used_;
  used_ += wanted;
  const std::int64_t full = used_ / kPageBytes * kPageBytes;
  if (full > large_) {
    wish_for_large_pages(chunk_->begin + large_, full - large_);
    if (before > large_) make_large(chunk_->begin + large_);
    large_ = full;
  }
  chunk_->users.fetch_add(1, std::memory_order_relaxed);
  new (line) Chunk*(chunk_);
  return Buffer(line + kLineBytes, bytes, [](void* data) {
    release(*reinterpret_cast<Chunk**>(static_cast<char*>(data) - kLineBytes));
  });
}

}  // namespace llorch::compute
