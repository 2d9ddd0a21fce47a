// Downloading a model: from its source, or a neighbour, into the models' folder and the catalog.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "base/home.h"
#include "base/result.h"
#include "catalog/model_catalog.h"
#include "catalog/model_names.h"
#include "contract/download_event.h"
#include "contract/model_entry.h"
#include "fetch/neighbour.h"
#include "fetch/source.h"
#include "fetch/transfer.h"

namespace llorch::catalog {

struct DownloadRequest {
  // What it is called in the catalog afterwards; empty: choose_model_id. An id that another
  // source's model has is a Conflict: nothing is replaced by something else.
  std::string id{};
  std::string ref{};  // where from; empty: the catalog's or the known model's
  std::vector<fetch::Neighbour> neighbours{};  // asked first, in this order
  bool only_neighbours = false;                // --from: no other source
  std::string hf_token{};                      // instead of the downloader's own; or empty
  std::string sha256{};                        // of its one file, in hex, as the user knows it
  int max_connections = 0;                     // at a time; 0: the downloader's own number
  // Where another process downloads the model: wait for its end and show its progress, instead of a
  // Conflict. Then this goes on, if anything is left to do.
  bool join = false;
};

// Which model a request means, by the catalog alone: its id and where it is fetched from, filled
// in. `also` tells of ids that are taken beside the catalog's. NotFound names similar models,
// InvalidArgument says what is wrong with the reference; Conflict where the id is that of another
// source's model.
Result<DownloadRequest> settle_download(const base::Home& home, DownloadRequest request,
                                        const FindOccupant& also = {});

using contract::DownloadEvent;
using contract::OnDownloadEvent;

// A model's files are in Home::models()/<id>/<revision>/: a new revision is fetched beside the old
// one, which goes when the catalog names the new one. Workers that run keep what they have mapped.
// Files that did not change between the revisions are linked, not fetched.
struct Downloader {
  base::Home home;
  fetch::SourceOptions source;
  fetch::TransferOptions transfer;

  // Blocks until the model is whole, verified and in the catalog, or fails; `on_event` is called on
  // the calling thread. A download that was cut off goes on where it was. Cancelled keeps the
  // parts. A model that is here at its newest revision costs the questions only. A file: reference
  // is registered where it lies.
  Result<contract::ModelEntry> download(const DownloadRequest& request,
                                        const OnDownloadEvent& on_event,
                                        std::stop_token stop) const;
};

}  // namespace llorch::catalog
