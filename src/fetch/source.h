// From a model_ref to the files that must be fetched, with everything the provider says about them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/home.h"
#include "base/result.h"
#include "fetch/chunks.h"
#include "fetch/model_ref.h"
#include "fetch/retry.h"

namespace llorch::fetch {

struct RemoteFile {
  std::string path;  // inside the model's folder: relative, without "..", '/' between parts
  std::string url;   // http(s) or file:
  // For this file only, secrets among them: never logged, and sent to the URL's own origin only,
  // not to where it redirects.
  std::vector<std::pair<std::string, std::string>> headers;
  std::optional<std::int64_t> size;  // none: the server does not say before the fetch
  // What the provider published of the content; each is checked where it is not empty.
  std::string sha256;                     // hex
  std::string git_sha1;                   // git's name of the blob, hex
  std::string integrity;                  // npm's "sha512-<base64>" of the whole file
  std::vector<std::string> chunk_sha256;  // of each chunk_bytes, from a neighbour
  std::int64_t chunk_bytes = kChunkBytes;
  // Where none of them is there: what the bytes are put together under. A part without any of these
  // is never resumed.
  std::string etag;
  std::string refusal_hint{};  // what to do when the URL's own host refuses it; or empty
};

struct ModelSource {
  ModelRef ref;          // with the revision pinned
  std::string revision;  // commit, version or ETag; what `outdated` compares
  std::string license;   // where the provider says
  std::vector<RemoteFile> files;
  // npm: the one file is a tarball; these members of it (by the path they get here) are the model.
  bool is_tarball = false;
  std::string tarball_member;  // empty: all that belong to a model
};

// Everything that comes from the environment and the command line.
struct SourceOptions {
  std::string hf_endpoint;   // HF_ENDPOINT, or the public hub
  std::string hf_token;      // HF_TOKEN, or the token file of huggingface's own tools; may be empty
  std::string npm_registry;  // empty: npm_program is asked (`npm config get registry`)
  std::filesystem::path npm_program;  // as found in PATH; empty: there is none
  std::string ca_file;                // SSL_CERT_FILE, or find_ca_file; empty: libcurl's own
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds request_timeout{60'000};  // of one metadata request
  RetryPolicy retry;
  // Called about once a second while an answer is overdue: whose, and for how long so far.
  std::function<void(const std::string& host, std::chrono::milliseconds waited)> on_wait;
  std::chrono::milliseconds wait_shown = kWaitShown;
};
SourceOptions source_options(const base::Environment& environment);
// Whom this system trusts, in one file: distributions keep it in different places, and our programs
// may have been built on another one. Empty: there is none of those known.
std::string find_ca_file(const std::filesystem::path& root);
// https, or this host itself: where a secret may go.
bool is_private_way(const std::string& url);

// Asks the provider. A catalog id is not accepted here. NotFound, Unauthorized and Forbidden say
// which repository, whether a token was sent, and what to do; Unavailable after bounded retries.
Result<ModelSource> resolve_source(const ModelRef& ref, const SourceOptions& options,
                                   std::stop_token stop);

// The newest revision only: one small request.
Result<std::string> newest_revision(const ModelRef& ref, const SourceOptions& options,
                                    std::stop_token stop);

}  // namespace llorch::fetch
