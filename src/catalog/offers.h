// Who can give a model's files: neighbours first, then the source itself, where they agree on what
// the files are. Private to catalog/.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "catalog/download.h"
#include "catalog/source.h"
#include "catalog/transfer.h"

namespace llorch::catalog {

struct Offer {
  std::string from;  // for people
  RemoteFile file;
};

struct OfferedModel {
  ModelSource source;                      // what the model is: its files and their hashes
  std::vector<std::vector<Offer>> offers;  // of each of its files, best first; never empty
};

using OnNote = std::function<void(const std::string& text)>;
using NamedSource = std::pair<std::string, ModelSource>;

// Neighbours in their order, then the origin. What the origin says of the files is the truth: a
// neighbour whose file is another one is left out for it, and one whose file cannot be compared
// with it too. Without an origin the first neighbour's manifest is the truth. Pure, but for the
// notes.
OfferedModel merge_offers(const std::optional<NamedSource>& origin,
                          const std::vector<NamedSource>& neighbours, const OnNote& on_note);

// Asks the neighbours of the request and, unless it is for neighbours only, the source `ref`. A
// neighbour that does not answer is a note. A source that cannot be reached is one too where a
// neighbour has the model; its refusal is an error.
Result<OfferedModel> find_offers(const DownloadRequest& request, const std::optional<ModelRef>& ref,
                                 const SourceOptions& options, const OnNote& on_note,
                                 std::stop_token stop);

// fetch_file from the first that can: one that dies or lies midway is a note, and the next goes on
// with what is right so far.
Result<FileChunks> fetch_offered(const std::vector<Offer>& offers,
                                 const std::filesystem::path& target,
                                 const TransferOptions& options, const OnTransferProgress& progress,
                                 const OnNote& on_note, std::stop_token stop);

}  // namespace llorch::catalog
