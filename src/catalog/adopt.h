// Models that other programs have fetched already: found in their caches and registered where they
// lie. Nothing there is ever changed, copied or deleted.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/home.h"
#include "base/result.h"
#include "contract/fields.h"

namespace llorch::catalog {

struct AdoptRequest {
  // "ollama", "huggingface", or a folder: one of these caches, or any with models in it. Empty:
  // both caches, where they are.
  std::string from{};
  bool dry_run = false;  // looks only
};
template <class V, contract::Described<AdoptRequest> T>
void describe(V& v, T& request) {
  v("from", request.from, {.bytes = {1, 4096}});
  v("dry_run", request.dry_run);
}

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
inline constexpr std::array<std::string_view, 3> kAdoptSources = {"ollama", "huggingface",
                                                                  "folder"};
template <class V, contract::Described<Adoptable> T>
void describe(V& v, T& model) {
  v("from", model.from, {.names = kAdoptSources});
  v("id", model.id);
  v("name", model.name);
  v("path", model.path);
  v("ref", model.ref);
  v("bytes", model.bytes);
  v("problem", model.problem, {.omit_empty = true});
}

struct AdoptReport {
  std::vector<std::string> places;  // that were looked into
  std::vector<Adoptable> adopted;   // or would be
  std::vector<Adoptable> skipped;   // each with its problem
};
template <class V, contract::Described<AdoptReport> T>
void describe(V& v, T& report) {
  v("places", report.places);
  v("adopted", report.adopted);
  v("skipped", report.skipped);
}

// The caches are those of the environment: OLLAMA_MODELS or ~/.ollama/models; HF_HUB_CACHE,
// HF_HOME/hub or ~/.cache/huggingface/hub. NotFound when the place that was named is not there.
// Blocks on the disk.
Result<AdoptReport> adopt_models(const base::Home& home, const base::Environment& environment,
                                 const AdoptRequest& request);

}  // namespace llorch::catalog
