#include "fetch/chunk_table.h"

#include <algorithm>
#include <utility>

#include "fetch/chunks.h"

namespace llorch::fetch {

void ChunkTable::begin(std::optional<std::int64_t> size) {
  chunks_.clear();
  prefix_ = 0;
  bytes_done_ = 0;
  set_size(size);
}

void ChunkTable::set_size(std::optional<std::int64_t> size) {
  size_ = size;
  if (size_) chunks_.resize(static_cast<std::size_t>(count_chunks(*size_, chunk_bytes_)));
}

std::int64_t ChunkTable::begin_of(std::size_t index) const {
  return static_cast<std::int64_t>(index) * chunk_bytes_;
}

std::int64_t ChunkTable::size_of(std::size_t index) const {
  return size_ ? std::min(chunk_bytes_, *size_ - begin_of(index)) : chunk_bytes_;
}

std::int64_t ChunkTable::prefix_bytes() const {
  return size_ ? std::min(*size_, begin_of(prefix_)) : begin_of(prefix_);
}

bool ChunkTable::is_whole() const {
  return size_ && prefix_ == chunks_.size() &&
         static_cast<std::int64_t>(chunks_.size()) == count_chunks(*size_, chunk_bytes_);
}

void ChunkTable::add(std::size_t index, std::span<const std::byte> bytes) {
  Chunk& chunk = chunks_[index];
  if (!chunk.digest) chunk.digest.emplace();
  chunk.digest->add(bytes);
  chunk.received += static_cast<std::int64_t>(bytes.size());
  bytes_done_ += static_cast<std::int64_t>(bytes.size());
}

std::string ChunkTable::take_hash(std::size_t index) {
  Chunk& chunk = chunks_[index];
  if (!chunk.digest) chunk.digest.emplace();
  std::string hash = chunk.digest->finish_hex();
  chunk.digest.reset();
  return hash;
}

void ChunkTable::accept(std::size_t index, std::string sha256) {
  Chunk& chunk = chunks_[index];
  bytes_done_ += size_of(index) - chunk.received;
  chunk.received = size_of(index);
  chunk.digest.reset();
  chunk.sha256 = std::move(sha256);
  while (prefix_ < chunks_.size() && chunks_[prefix_].is_done()) ++prefix_;
}

void ChunkTable::drop(std::size_t index) {
  bytes_done_ -= chunks_[index].received;
  chunks_[index] = {};
  prefix_ = std::min(prefix_, index);
}

void ChunkTable::begin_twice() {
  for (Chunk& chunk : chunks_) {
    std::string earlier = std::move(chunk.sha256);
    chunk = {};
    chunk.earlier_sha256 = std::move(earlier);
  }
  prefix_ = 0;
  bytes_done_ = 0;
}

std::size_t ChunkTable::count_differing() const {
  return static_cast<std::size_t>(
      std::count_if(chunks_.begin(), chunks_.end(), [](const Chunk& chunk) {
        return !chunk.earlier_sha256.empty() && chunk.earlier_sha256 != chunk.sha256;
      }));
}

}  // namespace llorch::fetch
