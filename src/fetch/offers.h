// Who can give a model's files: neighbours first, then the source itself, where they agree on what
// the files are.
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
#include "fetch/neighbour.h"
#include "fetch/source.h"
#include "fetch/transfer.h"

namespace llorch::fetch {

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

// Asks the neighbours for the model of that id and, where it is named, the source `ref`. A
// neighbour that does not answer is a note. A source that cannot be reached is one too where a
// neighbour has the model; its refusal is an error.
struct OfferQuestion {
  std::string id;                     // of the model, as neighbours know it
  std::vector<Neighbour> neighbours;  // asked first, in this order
  std::optional<ModelRef> ref;        // where else from
  bool only_neighbours = false;       // `ref` says which revision, and is not asked
};
Result<OfferedModel> find_offers(const OfferQuestion& question, const SourceOptions& options,
                                 const OnNote& on_note, std::stop_token stop);

// transfer_file from the first that can: one that dies or lies midway is a note, and the next goes
// on with what is right so far.
Result<FileChunks> transfer_offered(const std::vector<Offer>& offers,
                                    const std::filesystem::path& target,
                                    const TransferOptions& options,
                                    const OnTransferProgress& progress, const OnNote& on_note,
                                    std::stop_token stop);

}  // namespace llorch::fetch
