// Which chunks of a file are here: bookkeeping only, no disk and no network. Private to fetch/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"

namespace llorch::fetch {

struct Chunk {
  std::int64_t received = 0;             // bytes of it that are here, from its front
  std::optional<base::Digest> digest{};  // of these, until it is done
  std::string sha256{};                  // of all of it; empty: not done
  std::string earlier_sha256{};          // of what came the time before

  bool is_done() const { return !sha256.empty(); }
};

class ChunkTable {
 public:
  explicit ChunkTable(std::int64_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  // Everything is missing, of a file of that size; nothing: it is not known.
  void begin(std::optional<std::int64_t> size);
  // What is here stays. A size that is known makes all its chunks.
  void set_size(std::optional<std::int64_t> size);
  void grow() { chunks_.emplace_back(); }  // by one chunk, while the size is not known

  const std::optional<std::int64_t>& size() const { return size_; }
  std::int64_t chunk_bytes() const { return chunk_bytes_; }
  std::size_t count() const { return chunks_.size(); }
  const Chunk& operator[](std::size_t index) const { return chunks_[index]; }
  std::int64_t begin_of(std::size_t index) const;
  std::int64_t size_of(std::size_t index) const;
  bool is_full(std::size_t index) const { return chunks_[index].received == size_of(index); }

  std::int64_t bytes_done() const { return bytes_done_; }
  std::size_t prefix() const { return prefix_; }  // chunks from the front that are done
  std::int64_t prefix_bytes() const;
  bool is_whole() const;

  void add(std::size_t index, std::span<const std::byte> bytes);  // behind what is here of it
  std::string take_hash(std::size_t index);                       // of what is here of it
  void accept(std::size_t index, std::string sha256);             // done
  void drop(std::size_t index);                                   // nothing of it is here
  // Nothing is here any more; what came is remembered to be compared with what comes next.
  void begin_twice();
  std::size_t count_differing() const;  // from what came the time before

 private:
  const std::int64_t chunk_bytes_;
  std::optional<std::int64_t> size_;
  std::vector<Chunk> chunks_;
  std::size_t prefix_ = 0;
  std::int64_t bytes_done_ = 0;
};

}  // namespace llorch::fetch
