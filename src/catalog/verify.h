// Are a model's files still what they were? And if not, mending them chunk by chunk.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "catalog/download.h"

namespace llorch::catalog {

struct RottedChunk {
  std::string file;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  bool repaired = false;
  std::string from;    // which neighbour or source mended it
  std::string reason;  // why it could not be mended
};

struct VerifyReport {
  std::string model;
  std::int64_t bytes_checked = 0;
  bool hashed_first_time = false;  // there was nothing to compare with: hashes are kept from now on
  std::vector<std::string> missing;  // files that are gone or have another size
  std::vector<RottedChunk> rotted;

  bool is_whole() const;  // nothing missing, everything rotted repaired
};

struct VerifyRequest {
  std::string id;
  bool repair = false;  // only files below our own models' folder are ever written
  std::vector<Neighbour> neighbours;
};

// Reads every byte. `on_event` gets Progress and Note.
Result<VerifyReport> verify_model(const Downloader& downloader, const VerifyRequest& request,
                                  const OnDownloadEvent& on_event, std::stop_token stop);

}  // namespace llorch::catalog
