// Downloading a model: from its source, or a neighbour, into the models' folder and the catalog.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"
#include "base/json.h"
#include "base/result.h"
#include "catalog/model_catalog.h"
#include "catalog/neighbour.h"
#include "catalog/source.h"
#include "catalog/transfer.h"
#include "contract/model_entry.h"

namespace llorch::catalog {

struct DownloadRequest {
  std::string id;   // what it is called in the catalog afterwards; empty: derive_model_id of `ref`
  std::string ref;  // where from; empty: the catalog's or the known model's
  std::vector<Neighbour> neighbours;  // asked first, in this order
  bool only_neighbours = false;       // --from: no other source
};

// What the CLI draws and the API streams.
struct DownloadEvent {
  enum class Kind : std::uint8_t { Resolved, Progress, Verifying, FileDone, Note, Done };
  Kind kind = Kind::Progress;
  std::string model;
  std::string file;  // Progress, FileDone
  std::int64_t files_done = 0;
  std::int64_t files_total = 0;
  std::int64_t bytes_done = 0;  // of the whole model
  std::int64_t bytes_total = 0;
  double bytes_per_second = 0;
  std::optional<double> seconds_left;
  // How long nothing has come, and from which host; nothing: it comes.
  std::optional<std::int64_t> waiting_seconds;
  std::string waiting_for;
  std::string text;  // Note
};
json::Object to_json(const DownloadEvent& event);
// "resolved", "progress", …
std::string_view name(DownloadEvent::Kind kind);
using OnDownloadEvent = std::function<void(const DownloadEvent& event)>;

// The id of a model that is fetched by its reference alone: the last part of its place and, where a
// file or a quantisation was named, that behind it, in lower case, with '-' for what an id cannot
// hold. "hf:org/TinyLlama-Chat-GGUF::file=Q4_K_M" is "tinyllama-chat-gguf-q4_k_m".
std::string derive_model_id(const ModelRef& ref);

// A model's files are in Home::models()/<id>/<revision>/: a new revision is fetched beside the old
// one, which goes when the catalog names the new one. Workers that run keep what they have mapped.
// Files that did not change between the revisions are linked, not fetched.
struct Downloader {
  base::Home home;
  SourceOptions source;
  TransferOptions transfer;

  // Blocks until the model is whole, verified and in the catalog, or fails; `on_event` is called on
  // the calling thread. A download that was cut off goes on where it was. Cancelled keeps the
  // parts. A model that is here at its newest revision costs the questions only. A file: reference
  // is registered where it lies.
  Result<contract::ModelEntry> download(const DownloadRequest& request,
                                        const OnDownloadEvent& on_event,
                                        std::stop_token stop) const;
};

}  // namespace llorch::catalog
