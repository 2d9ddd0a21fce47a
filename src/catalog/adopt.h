// Models that other programs have fetched already: found in their caches and registered where they
// lie. Nothing there is ever changed, copied or deleted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/home.h"
#include "base/json.h"
#include "base/result.h"

namespace llorch::catalog {

struct AdoptRequest {
  // "ollama", "huggingface", or a folder: one of these caches, or any with models in it. Empty:
  // both caches, where they are.
  std::string from{};
  bool dry_run = false;  // looks only
};

// One model that was found.
struct Adoptable {
  std::string from;            // "ollama", "huggingface", "folder"
  std::string id;              // as it is, or would be, registered
  std::string name;            // as its own program calls it
  std::filesystem::path path;  // a file, or a folder in Hugging Face layout
  std::string ref;             // where it came from, where the cache says
  std::int64_t bytes = 0;
  // What the cache says its files are, by their paths in the model's folder: blobs are named by
  // their SHA-256.
  std::vector<std::pair<std::string, std::string>> sha256{};
  std::string problem{};  // why it is not taken: here already, or no model of ours
};
json::Object to_json(const Adoptable& model);

struct AdoptReport {
  std::vector<std::string> places;  // that were looked into
  std::vector<Adoptable> adopted;   // or would be
  std::vector<Adoptable> skipped;   // each with its problem
};
json::Object to_json(const AdoptReport& report);

// The caches are those of the environment: OLLAMA_MODELS or ~/.ollama/models; HF_HUB_CACHE,
// HF_HOME/hub or ~/.cache/huggingface/hub. NotFound when the place that was named is not there.
// Blocks on the disk.
Result<AdoptReport> adopt_models(const base::Home& home, const base::Environment& environment,
                                 const AdoptRequest& request);

}  // namespace llorch::catalog
