#include "fetch/offers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/utf8.h"
#include "fetch/neighbour.h"

namespace llorch::fetch {
namespace {

const RemoteFile* find_path(const ModelSource& source, std::string_view path) {
  const auto found = std::find_if(source.files.begin(), source.files.end(),
                                  [&](const RemoteFile& file) { return file.path == path; });
  return found == source.files.end() ? nullptr : &*found;
}

// What a neighbour offers of a file, to be checked by what the truth says of it. Nothing when it is
// another file, or when nothing tells whether it is.
std::optional<RemoteFile> offer_of(const ModelSource& truth, const RemoteFile& wanted,
                                   const ModelSource& neighbour) {
  const RemoteFile* found = find_path(neighbour, wanted.path);
  if (found == nullptr) return std::nullopt;
  if (wanted.size && found->size && *wanted.size != *found->size) return std::nullopt;
  if (!wanted.sha256.empty() && wanted.sha256 != found->sha256) return std::nullopt;
  const bool can_be_checked =
      !wanted.sha256.empty() || !wanted.git_sha1.empty() || !wanted.integrity.empty();
  const bool same_revision = !truth.revision.empty() && truth.revision == neighbour.revision;
  if (!can_be_checked && !same_revision) return std::nullopt;
  RemoteFile offer = *found;
  offer.git_sha1 = wanted.git_sha1;
  offer.integrity = wanted.integrity;
  return offer;
}

// Trying another place would not help: the trouble is here.
bool is_our_own(ErrorCode code) {
  return code == ErrorCode::Cancelled || code == ErrorCode::OutOfMemory ||
         code == ErrorCode::Conflict;
}

bool is_unreachable(ErrorCode code) {
  return code == ErrorCode::Unavailable || code == ErrorCode::DeadlineExceeded;
}

// What the neighbours have, and why the others have nothing.
struct Asked {
  std::vector<NamedSource> sources;
  std::string refusals;
};
Asked ask_neighbours(const OfferQuestion& question, const SourceOptions& options,
                     const OnNote& on_note, const std::stop_token& stop) {
  const std::optional<ModelRef>& ref = question.ref;
  Asked asked;
  for (const Neighbour& neighbour : question.neighbours) {
    Result<ModelSource> source = resolve_neighbour(neighbour, question.id, options, stop);
    if (source.ok() && ref && !ref->revision.empty() && source->revision != ref->revision)
      source = Error{ErrorCode::NotFound,
                     fmt::format("{} has revision {} of {}, not {}", neighbour.url,
                                 base::quoted(source->revision), question.id, ref->revision)};
    if (source.ok()) {
      asked.sources.emplace_back(neighbour.url, source.take());
      continue;
    }
    on_note(source.error().message);
    asked.refusals += (asked.refusals.empty() ? "" : "; ") + source.error().message;
  }
  return asked;
}

}  // namespace

OfferedModel merge_offers(const std::optional<NamedSource>& origin,
                          const std::vector<NamedSource>& neighbours, const OnNote& on_note) {
  CHECK(origin || !neighbours.empty(), "nobody offers anything");
  OfferedModel model;
  model.source = origin ? origin->second : neighbours.front().second;
  if (model.source.is_tarball && !neighbours.empty())
    on_note(
        fmt::format("{} is an archive, whose files no neighbour can prove: it is fetched as it "
                    "is; --from HOST takes a neighbour's word",
                    origin->first));
  for (const RemoteFile& wanted : model.source.files) {
    std::vector<Offer>& offers = model.offers.emplace_back();
    for (const auto& [name, source] : neighbours) {
      if (model.source.is_tarball) continue;
      std::optional<RemoteFile> offer = offer_of(model.source, wanted, source);
      if (offer)
        offers.push_back({name, std::move(*offer)});
      else
        on_note(fmt::format("{} does not have the same {}", name, base::quoted(wanted.path)));
    }
    if (origin) offers.push_back({origin->first, wanted});
    CHECK(!offers.empty(), "the truth offers its own files");
  }
  return model;
}

Result<OfferedModel> find_offers(const OfferQuestion& question, const SourceOptions& options,
                                 const OnNote& on_note, std::stop_token stop) {
  const std::optional<ModelRef>& ref = question.ref;
  Asked asked = ask_neighbours(question, options, on_note, stop);
  if (stop.stop_requested()) return Error{ErrorCode::Cancelled, "the download was cancelled"};
  if (question.only_neighbours) {
    if (asked.sources.empty())
      return Error{ErrorCode::NotFound,
                   fmt::format("no host of --from gives {}: {}", question.id, asked.refusals)};
    return merge_offers(std::nullopt, asked.sources, on_note);
  }
  CHECK(ref.has_value(), "a download that is not from neighbours has a source");
  Result<ModelSource> origin = resolve_source(*ref, options, stop);
  if (origin.ok())
    return merge_offers(NamedSource(ref->text(), origin.take()), asked.sources, on_note);
  if (asked.sources.empty() || !is_unreachable(origin.error().code)) return origin.error();
  on_note(fmt::format("{}; the model is taken from {}", origin.error().message,
                      asked.sources.front().first));
  return merge_offers(std::nullopt, asked.sources, on_note);
}

Result<FileChunks> transfer_offered(const std::vector<Offer>& offers,
                                    const std::filesystem::path& target,
                                    const TransferOptions& options,
                                    const OnTransferProgress& progress, const OnNote& on_note,
                                    std::stop_token stop) {
  CHECK(!offers.empty(), "nobody offers the file");
  for (std::size_t i = 0;; ++i) {
    Result<FileChunks> fetched = transfer_file(offers[i].file, target, options, progress, stop);
    const bool is_last = i + 1 == offers.size();
    if (fetched.ok() || is_last || is_our_own(fetched.error().code)) return fetched;
    on_note(fmt::format("{} from {}: {}; going on with {}", offers[i].file.path, offers[i].from,
                        fetched.error().message, offers[i + 1].from));
  }
}

}  // namespace llorch::fetch
