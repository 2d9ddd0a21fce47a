// Are a model's files still what they were? And if not, mending them chunk by chunk.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "catalog/download.h"
#include "contract/model_entry.h"
#include "fetch/chunks.h"

namespace llorch::catalog {

// One thing that is wrong with one file.
struct Damage {
  enum class Kind : std::uint8_t {
    Missing,    // nothing is there, or nothing that can be read
    WrongSize,  // shorter or longer than it was
    Rotted,     // these bytes are others
  };
  Kind kind = Kind::Rotted;
  std::string file;         // relative
  std::int64_t offset = 0;  // Rotted
  std::int64_t bytes = 0;   // Rotted: how many; else the size that the file should have
  bool repaired = false;
  std::string from;    // which neighbour or source mended it
  std::string reason;  // why it could not be mended; or what was found
};

struct VerifyReport {
  std::string model;
  std::int64_t files_checked = 0;
  std::int64_t bytes_checked = 0;
  bool hashed_first_time = false;  // some file had nothing to compare with: its hashes are kept now
  std::vector<Damage> damages;

  bool is_whole() const;  // nothing was wrong, or everything is repaired
};
json::Object to_json(const VerifyReport& report);

struct VerifyRequest {
  std::string id;
  bool repair = false;  // only files below our own models' folder are ever written
  std::vector<fetch::Neighbour> neighbours;  // asked before the model's own source, in this order
};

// Reads every byte. `on_event` gets Progress and Note, on the calling thread. Damage is no error:
// it is in the report. Models that are part of the program are whole without reading.
Result<VerifyReport> verify_model(const Downloader& downloader, const VerifyRequest& request,
                                  const OnDownloadEvent& on_event, std::stop_token stop);

// Whether the entry has files of its own on this host.
bool has_files(const contract::ModelEntry& entry);
// Whether the kept hashes are those of the file that the catalog knows.
bool is_record_of(const fetch::FileChunks& record, const contract::ModelFile& file);

}  // namespace llorch::catalog
